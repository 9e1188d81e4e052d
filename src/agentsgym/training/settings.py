"""The trainer's settings that TRL does not have, with type, range, default and description.

They are declared here alone: `GRPOEnvConfig` has its fields from here, so has the section `train`
of a run, and docs/settings.md is made from here.
"""

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from agentsgym.credit import ESTIMATORS
from agentsgym.generation.settings import EngineSettings
from agentsgym.types.names import ConfigError
from agentsgym.types.settings import (
    Count,
    CountOrZero,
    NotNegative,
    Positive,
    Section,
    Share,
    Text,
    Texts,
    read,
)

ACTION_TOKENS = 64
"""Default token cap of an action."""
TRAIN_CAPACITY = 256
"""Default of `engine.capacity` in training."""


def _from_json(value: Any) -> Any:
    """A mapping, given directly or, on a command line, as JSON; None is an empty one."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(f"must be a mapping or JSON of one, got {value!r}") from None
    return {} if value is None else value


def _as_list(value: Any) -> Any:
    """One number is a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _trust(value: Any) -> Any:
    """True, false or module names; on a command line all of them are texts."""
    words = {"true": True, "false": False}
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return words.get(value.lower(), [value])
    return False if value is None else list(value) if isinstance(value, tuple) else value


Options = Annotated[dict[str, Any] | str | None, BeforeValidator(_from_json)]
_Numbers = Annotated[list[Positive], BeforeValidator(_as_list)]
Bounds = Annotated[dict[str, _Numbers] | str | None, BeforeValidator(_from_json)]


class RaySettings(Section):
    """Actors of a Ray cluster play this process's training rollouts, using the servers in
    `engine.urls` (docs/distributed.md)."""

    workers: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Number of actors; 0: this process plays the rollouts.",
    )
    resources: dict[str, NotNegative] = Field(
        default_factory=dict,
        description="Resources of each actor: num_cpus (1 by default), num_gpus, memory in bytes, "
        "or a custom resource.",
    )


def setting(default: Any, help: str) -> Any:
    """The field of a setting; a callable default makes the value."""
    key = "default_factory" if callable(default) else "default"
    values: Any = {key: default}
    return Field(description=help, **values)


class TrainSettings(Section):
    """The settings of ours that are in the section `train` of a run, too."""

    advantage_estimator: str = setting(
        "grpo",
        f"How credit is assigned: an estimator ({', '.join(ESTIMATORS)}; docs/credit.md explains "
        "them) or the dotted path of a function.",
    )
    advantage_options: Options = setting(dict, "Options of the estimator, as a mapping or JSON.")
    train_on: Literal["rollout", "steps"] = setting(
        "rollout",
        "Rows of a rollout (docs/concepts.md): 'rollout': one row if the context only grows; "
        "'steps': one row per step.",
    )
    ratio_scope: Literal["token", "step", "rollout"] = setting(
        "token",
        "Scope of the importance ratio: 'token': each token's own ratio; 'step': mean "
        "over the tokens of an action; 'rollout': mean over all agent tokens of the "
        "rollout. The loss 'vespo' always uses 'rollout'.",
    )
    sampler_correction: Literal["truncate", "none"] = setting(
        "truncate",
        "Correction for an engine whose probabilities differ from the trainer's: 'truncate' "
        "multiplies each token's loss by the trainer's probability divided by the engine's, at "
        "most `sampler_cap`.",
    )
    sampler_cap: Positive = setting(2.0, "Largest factor.")
    off_policy_masks: Bounds = setting(
        dict,
        "Masks of the policy loss with bounds, such as `{icepop: [0.5, 5.0], dppo: 0.2}`, or JSON "
        "of them; a mask excludes tokens whose probability is far from the sampler's "
        "(docs/credit-reference.md).",
    )
    train_truncated_actions: bool = setting(
        True,
        "Whether actions that were cut off at the token cap count in the loss; otherwise they "
        "are context.",
    )
    zero_signal_groups: Literal["keep", "drop", "resample", "replay"] = setting(
        "keep",
        "What happens to groups whose advantages are all zero: 'keep'; 'drop': they do not count "
        "in the loss's denominators; 'resample': other tasks, or 'replay': earlier groups, replace "
        "them.",
    )
    replay_max_age: Count = setting(4, "Number of generations for which 'replay' keeps groups.")
    max_resample_rounds: CountOrZero = setting(
        2, "Maximum number of rounds in which 'resample' plays other tasks."
    )
    branches: CountOrZero = setting(
        0,
        "Number of branches of each ordinary rollout, for the estimator 'branch': a branch "
        "repeats the rollout's first actions and then differs (docs/branching.md).",
    )
    branch_where: Literal["first", "even"] = setting(
        "first",
        "The action that branches replace: 'first': the second action of the trial; "
        "'even': any action with equal probability.",
    )
    curriculum: Text | None = setting(
        None,
        "A key of `task_data`, such as `family`, whose values divide the training tasks "
        "into kinds; kinds whose groups have signal are drawn more often. 'task': each "
        "task is a kind. None: each task is drawn once per epoch.",
    )
    teacher_model: Text | None = setting(
        None,
        "Teacher for distillation: a model directory, a hub name, or the URL of a vLLM "
        "server (docs/training.md).",
    )
    teacher_key_env: Text | None = setting(
        None, "Environment variable that holds the key for the teacher's server."
    )
    distillation: Literal["reverse", "forward"] = setting(
        "reverse",
        "'reverse' minimizes KL(policy ‖ teacher), 'forward' KL(teacher ‖ policy).",
    )
    distillation_weight: NotNegative = setting(
        1.0,
        "Weight of the distillation loss, which is the mean over an optimizer step's agent tokens.",
    )
    policy_gradient: bool = setting(
        True, "False: advantages have no effect, and the policy learns only from the teacher."
    )
    max_action_tokens: Count = setting(
        ACTION_TOKENS, "Token cap of one action; unless it is set, chat:NAME has 512."
    )
    max_rollout_tokens: Count | None = setting(
        None, "Token cap of a row; an episode that needs more tokens ends."
    )
    stop_strings: Texts = setting(list, "Strings that end an action.")
    token_records: CountOrZero = setting(
        8,
        "Number of rollouts per generation and process whose log-probabilities, ratios and "
        "entropies are stored for `agentsgym view`.",
    )
    max_tokens_per_forward: Count = setting(
        16384,
        "Maximum number of tokens in a forward pass of the loss; a shared prefix counts once. "
        "Bounds memory.",
    )
    loss_norm_tokens: Count | None = setting(
        None, "Denominator of the loss 'dr_grpo'; None: max_rollout_tokens."
    )
    max_staleness: CountOrZero = setting(
        0,
        "Number of generations by which sampling may run ahead of learning; a value above 0 "
        "needs servers (docs/distributed.md).",
    )
    min_signal_share: Share = setting(
        0.02,
        "Training stops if the share of groups with signal stays below this value for "
        "`min_signal_patience` generations.",
    )
    min_signal_patience: Count = setting(20, "Number of generations for `min_signal_share`.")
    # In this order, a list of texts on the command line.
    trust: Annotated[list[str] | str | bool, BeforeValidator(_trust)] = setting(
        False,
        "What dataset rows may name: false: only registered environments; true: anything; a list "
        "of modules: their classes, too.",
    )

    @property
    def given(self) -> dict[str, Any]:
        """The settings that have been set, by name."""
        return {name: value for name, value in self if name in self.model_fields_set}


class OwnSettings(TrainSettings):
    """All settings of ours in `GRPOEnvConfig`."""

    engine: EngineSettings = setting(
        EngineSettings, "What samples the actions: the section `engine`, or its `name`."
    )
    ray: RaySettings = setting(RaySettings, "Actors that play the rollouts: the section `ray`.")
    chat_template: Literal["own", "training"] = setting(
        "own",
        "'own': the tokenizer's template; 'training': if this template rewrites earlier turns, "
        "TRL's version, which only appends text.",
    )
    eval_rollouts: Count = setting(1, "Rollouts per evaluation task.")
    eval_temperature: NotNegative = setting(
        1.0, "Sampling temperature of evaluations; 0 is greedy."
    )


ELSEWHERE = {
    "seed": "seed",
    "output_dir": "output_dir",
    "resume_from_checkpoint": "--resume RUN_DIR on the command line",
    "eval_temperature": "eval.temperature",
    "eval_rollouts": "eval.rollouts_per_task",
    "engine": "the section engine beside it",
    "ray": "the section ray beside it",
    "bf16": "model.dtype",
    "fp16": "model.dtype",
    "chat_template": "model.chat_template",
    "chat_template_kwargs": "model.chat_template_kwargs",
    "model_init_kwargs": "the section model beside it",
    "trust_remote_code": "nothing: a run never executes a model's own code",
}
"""Fields of `GRPOEnvConfig` that the section `train` does not have, and what to set instead."""


class TrainSection(TrainSettings):
    """The section `train`. TRL's settings are in it as they are given; `GRPOEnvConfig` checks
    them."""

    model_config = ConfigDict(extra="allow")
    main_key = "preset"

    preset: Literal["auto"] | None = setting(
        None,
        "A short probe of the game chooses all settings that you do not set "
        "(docs/warm-start.md). `train: auto` means the same.",
    )

    # TRL's that a run reads before TRL is imported; None: not given.
    use_cpu: bool | None = None
    max_steps: int | None = None
    beta: NotNegative | None = None

    @model_validator(mode="before")
    @classmethod
    def _has_its_place_here(cls, values: Any) -> Any:
        for key in ELSEWHERE.keys() & set(values if isinstance(values, Mapping) else ()):
            raise ConfigError(f"unknown key 'train.{key}'; set {ELSEWHERE[key]}")
        return values

    @model_serializer(mode="wrap")
    def _given_ones(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A stored configuration has what was given."""
        return {key: value for key, value in dump(self).items() if key in self.model_fields_set}

    def changed(self, values: Mapping[str, Any], without: Collection[str] = ()) -> "TrainSection":
        """A copy with other `values`, in which those of `without` are not given."""
        kept = {key: value for key, value in self.given.items() if key not in without}
        return read(TrainSection, {**kept, **values}, "train.")
