"""The initial model of a run, and the reference model of KL."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentsgym.envs import ConfigError
from agentsgym.generation.models import is_adapted
from agentsgym.runs.files.atomic import replacing
from agentsgym.runs.models import Use, device_in_use, load_model, load_tokenizer_of
from agentsgym.runs.parts import part
from agentsgym.runs.pretrained import Policy, is_adapter, load_pretrained, pretrained_tokenizer
from agentsgym.runs.progress import Progress
from agentsgym.runs.settings import BUILTIN, TINY, ModelSettings, RunConfig
from agentsgym.warm_start.settings import WarmStartSettings


def warm_starts(config: RunConfig) -> bool:
    """Whether a run begins with a warm start of a pretrained model."""
    return config.model.path != TINY and config.warm_start.source is not None


def warm_start_of(config: RunConfig) -> WarmStartSettings:
    """The run's section `warm_start`, with the defaults of its model. Raises ConfigError with a key
    that has no effect."""
    try:
        return config.warm_start.resolved(new_model=config.model.path == TINY)
    except ValueError as error:
        raise ConfigError(f"warm_start.{error}") from None


def load_policy(config: RunConfig, progress: Progress, *, training: bool = True) -> Policy:
    """The model that `config.model` names, to train or only to evaluate it. Raises ConfigError if
    it does not exist or cannot be loaded here."""
    if config.model.path == TINY:
        made = part("warm_start").new_model(config, progress)
        players = {name: asdict(one) for name, one in made.players.items()}
        figures = dict(made.figures) | {"settings": config.warm_start, "players": players}
        return Policy(made.model, made.tokenizer, figures)
    return load_model(config.model, _use(config, training))


def load_trained(config: RunConfig, folder: Path) -> Policy:
    """The run's model with the weights in `folder`: a checkpoint, or the trained model.

    Raises ConfigError if they are whole weights and the run trains an adapter, or the reverse.
    """
    from agentsgym.training.checkpoints import load_adapters

    adapted = config.model.lora is not None or is_adapter(Path(config.model.path))
    if is_adapter(folder) != adapted:
        kinds = ("whole weights", "an adapter")
        raise ConfigError(
            f"{folder} contains {kinds[is_adapter(folder)]}, but the run trains {kinds[adapted]}; "
            "model.lora must stay as it was"
        )
    if not adapted:
        attention = config.model.attn_implementation
        return load_pretrained(folder, ModelSettings(attn_implementation=attention))
    policy = load_model(config.model, _use(config, training=True))
    try:
        load_adapters(policy.model, folder)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Policy(policy.model, pretrained_tokenizer(folder))


def _use(config: RunConfig, training: bool) -> Use:
    device = device_in_use(use_cpu=training and bool(config.train.use_cpu))
    return Use(training=training, device=device, trust=config.train.trust is True)


def load_tokenizer(config: RunConfig) -> Any:
    """The tokenizer of the model that `config.model` names, without its weights.

    Raises ConfigError if it does not exist.
    """
    if config.model.path == TINY:
        raise ConfigError("model: 'tiny' is made in this process, so no server can serve it")
    return load_tokenizer_of(config.model, _use(config, training=False))


def name_reference(model: Any, section: ModelSettings, folder: Path) -> None:
    """Set the name of `model` to its initial weights, which TRL loads as the reference.

    A resumed model was loaded from its checkpoint and would otherwise be its own reference.
    `section` is the run's `model`; if its path alone does not lead to its weights, a copy is kept
    in `folder`. The reference of an adapter is in the model itself.
    """
    if is_adapted(model):
        return
    source = section.path
    if source == TINY or source.startswith(BUILTIN) or section.revision is not None:
        if not folder.is_dir():
            with replacing(folder) as part:
                model.save_pretrained(part)
        source = str(folder)
    model.config._name_or_path = source
