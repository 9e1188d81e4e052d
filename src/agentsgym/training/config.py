"""GRPOEnvConfig: TRL's GRPOConfig and what training on environments adds to it."""

import json
import logging
import warnings
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from pydantic import create_model
from trl import GRPOConfig

from agentsgym.credit import ESTIMATORS, check_estimator, find_estimator
from agentsgym.generation.embedded.precision import multiplies_bfloat16
from agentsgym.generation.factory import choose
from agentsgym.training.loss.losses import LOSSES
from agentsgym.training.loss.masks import bounds_of
from agentsgym.training.settings import TRAIN_CAPACITY, OwnSettings
from agentsgym.training.trl_settings import refuse_settings, refuse_without_effect, trl_types
from agentsgym.types.settings import Section, read
from agentsgym.types.text import masked

logger = logging.getLogger(__name__)

# Optimizers that want something else of every backward pass or evaluation than we do.
_OTHER_OPTIMIZERS = ("lomo", "adalomo", "schedule_free")


def _values_of_trl() -> type[Section]:
    """A section that checks TRL's values; none of them is required."""
    fields: Any = {name: (kind, None) for name, kind in trl_types().items()}
    return create_model("ValuesOfTrl", __base__=Section, **fields)


def _fields_of(section: type[Section]) -> type:
    """A dataclass with the fields of a section, as transformers reads them."""
    made = []
    for name, each in section.model_fields.items():
        key = "default_factory" if each.default_factory else "default"
        default: Any = {key: getattr(each, key)}
        made.append((name, each.annotation, field(metadata={"help": each.description}, **default)))
    return make_dataclass(section.__name__, made, kw_only=True)


_VALUES = _values_of_trl()
if TYPE_CHECKING:
    _Own = OwnSettings
else:
    _Own = _fields_of(OwnSettings)


@dataclass
class GRPOEnvConfig(_Own, GRPOConfig):  # type: ignore[misc]
    """Settings of `GRPOEnvTrainer`.

    TRL's names keep their meaning; `per_device_train_batch_size` counts rollouts,
    `num_generations` is the number of rollouts of a task, `scale_rewards` belongs to the "grpo"
    estimator. docs/settings.md has all of them. Raises ValueError for a value outside its range,
    for a setting that would be ignored, and for a combination that would train something else than
    asked.
    """

    # TRL's fields, of which versions of TRL have different defaults.
    use_bias_correction_kl: bool = field(
        default=True, metadata={"help": "Whether KL is weighted by the importance ratio."}
    )
    router_aux_loss_coef: float | None = field(
        default=0.0, metadata={"help": "Weight of the experts' load-balancing loss."}
    )

    _own_is_read = False

    @classmethod
    def of_read(cls, **values: Any) -> Self:
        """A configuration of values of which those of ours were read before, as a run's are: only
        TRL's are still checked, and all against each other."""
        config = cls.__new__(cls)
        config._own_is_read = True
        cls.__init__(config, **values)
        return config

    def __post_init__(self) -> None:
        self._choose_device()
        if getattr(self, "bf16", None) is None and not self.fp16:
            self.bf16: bool = not self.use_cpu and multiplies_bfloat16("cuda")
        self._read_values()
        refuse_settings(self)
        _choose_metric(self)
        self._check_with_trl()
        self._use_one_gpu()
        _choose_mode(self)
        _check_combinations(self)

    def _read_values(self) -> None:
        """Check types and ranges, and bring what YAML or a command line gives into their shape."""
        read(_VALUES, {name: getattr(self, name, None) for name in _VALUES.model_fields})
        if not self._own_is_read:
            given = {name: getattr(self, name) for name in OwnSettings.model_fields}
            for name, value in read(OwnSettings, given):
                setattr(self, name, value)
        kwargs: Any = self.chat_template_kwargs
        if isinstance(kwargs, str):  # newer versions of transformers read the JSON themselves
            self.chat_template_kwargs: dict[str, Any] | None = json.loads(kwargs)
        if self.engine.capacity is None:
            self.engine = self.engine.model_copy(update={"capacity": TRAIN_CAPACITY})

    def _check_with_trl(self) -> None:
        """TRL's own checks, without two: an evaluation plays tasks itself, so no batch of it must
        be divisible; and a copy of a configuration has both sizes of a generation."""
        size = self.generation_batch_size
        if self.steps_per_generation is not None:
            self.generation_batch_size: Any = None
        self.num_generations_eval: int | None = 1
        with warnings.catch_warnings():  # about TRL's own default of gradient_checkpointing
            warnings.filterwarnings("ignore", "`gradient_checkpointing", FutureWarning)
            super().__post_init__()
        self.num_generations_eval = None
        if size is not None and size != self.generation_batch_size:
            raise ValueError(
                f"generation_batch_size={size} does not agree with steps_per_generation="
                f"{self.steps_per_generation}, which makes it {self.generation_batch_size}"
            )

    def _choose_device(self) -> None:
        """Train on the CPU of a Mac: sampling sums in float64, which its GPU (MPS) lacks."""
        if torch.backends.mps.is_available() and not self.use_cpu:
            logger.warning("this training uses the CPU; the GPU of a Mac (MPS) is not supported")
            self.use_cpu: bool = True

    def _use_one_gpu(self) -> None:
        """Let a process that was started by itself train on the first of several GPUs; transformers
        would copy the model to all of them, which TRL refuses."""
        if self.n_gpu > 1:
            if not self.engine.launch:
                logger.warning(
                    "this process trains on one of %d GPUs; all take part with agentsgym train … "
                    "--processes %d, or a program under accelerate launch",
                    *(self.n_gpu, self.n_gpu),
                )
            self._n_gpu = 1

    def to_dict(self) -> dict[str, Any]:
        """The settings as trackers store them, without the credentials in addresses."""
        plain = super().to_dict() | {
            "engine": self.engine.model_dump(),
            "ray": self.ray.model_dump(),
        }
        return {name: masked(value, name) for name, value in plain.items()}

    @property
    def estimator_options(self) -> dict[str, Any]:
        """`advantage_options`, with TRL's `scale_rewards` for the estimator that it belongs to."""
        options: dict[str, Any] = dict(self.advantage_options or {})  # type: ignore[arg-type]
        own = {"scale_rewards": self.scale_rewards} if self.estimator_scales else {}
        return own | options

    @property
    def estimator_scales(self) -> bool:
        """Whether `scale_rewards` belongs to the estimator."""
        return find_estimator(self.advantage_estimator).takes_scale_rewards

    @property
    def off_policy_bounds(self) -> dict[str, tuple[float, ...]]:
        """The bounds of each of `off_policy_masks`."""
        return bounds_of(self.off_policy_masks)  # type: ignore[arg-type]

    @property
    def norm_tokens(self) -> int | None:
        """Denominator of "dr_grpo", in tokens."""
        return self.loss_norm_tokens or self.max_rollout_tokens

    @property
    def teacher_on_server(self) -> bool:
        """Whether `teacher_model` is the URL of a server."""
        return (self.teacher_model or "").startswith(("http://", "https://"))

    @property
    def updates_per_generation(self) -> int:
        """Optimizer steps that one generation feeds; checkpoints fall on their multiples. (TRL's
        `steps_per_generation` counts micro-batches.)"""
        updates: int = self.steps_per_generation // self.gradient_accumulation_steps
        return updates * int(self.num_iterations)


# -- settings against each other -------------------------------------------------------------------


def _check_combinations(config: Any) -> None:
    """Raise ValueError for settings that contradict each other, and for one that has no effect with
    the others; `config` is a GRPOEnvConfig."""
    if config.steps_per_generation % config.gradient_accumulation_steps:
        raise ValueError(
            f"steps_per_generation ({config.steps_per_generation}) must be a multiple of "
            f"gradient_accumulation_steps ({config.gradient_accumulation_steps}): an optimizer "
            "step must not span two generations"
        )
    if LOSSES[config.loss_type].needs_norm_tokens and config.norm_tokens is None:
        raise ValueError(
            f"loss_type {config.loss_type!r} needs loss_norm_tokens or max_rollout_tokens"
        )
    replays = config.zero_signal_groups == "replay"
    if (config.max_staleness or replays) and config.sampler_correction == "none":
        name = "zero_signal_groups='replay'" if replays else "max_staleness"
        raise ValueError(f"{name} needs sampler_correction: rollouts are not on-policy")
    per_rank = config.per_device_train_batch_size * config.steps_per_generation
    if per_rank % config.num_generations:
        raise ValueError(
            f"a process plays whole groups: its {per_rank} rollouts of a generation must be a "
            f"multiple of num_generations={config.num_generations}"
        )
    bounds_of(config.off_policy_masks)
    if config.teacher_on_server and config.temperature != 1.0:
        raise ValueError(
            f"teacher_model={masked(config.teacher_model)} gives log-probabilities at temperature "
            f"1, the policy's are at temperature={config.temperature}; load the teacher here, by "
            "its directory, or train at temperature 1"
        )
    _check_estimator(config)
    _check_branches(config)
    _check_engine(config)
    _check_accelerator(config)
    refuse_without_effect(config)


def _check_estimator(config: Any) -> None:
    name, scaling = config.advantage_estimator, config.scale_rewards
    check_estimator(name, config.estimator_options)
    others = {"max_staleness": 0, "top_p": 1.0, "top_k": 0}
    changed = [other for other, default in others.items() if getattr(config, other) != default]
    if find_estimator(name).reads_choices and changed:
        raise ValueError(
            f"advantage_estimator {name!r} reads the current policy's probabilities, and with "
            f"{changed[0]} actions are sampled with others; it would be biased"
        )
    if scaling == "group":
        return
    if not config.estimator_scales:
        takers = ", ".join(repr(e.name) for e in ESTIMATORS.values() if e.takes_scale_rewards)
        raise ValueError(
            f"scale_rewards belongs to the estimator {takers}, not {name!r}; set advantage_options"
        )
    own = config.advantage_options.get("scale_rewards", scaling)
    if own != scaling:
        raise ValueError(
            f"scale_rewards={scaling!r} and advantage_options['scale_rewards']={own!r} mean the "
            "same; set one of them"
        )


def _check_branches(config: Any) -> None:
    number, size, name = config.branches, config.num_generations, config.advantage_estimator
    if number and not find_estimator(name).reads_branches:
        raise ValueError(
            f"branches={number} needs advantage_estimator='branch': {name!r} would compare a "
            "branch with rollouts that do not begin as it does"
        )
    if number and (size % (number + 1) or size == number + 1):
        raise ValueError(
            f"num_generations={size} must be 2 or more times branches + 1 = {number + 1}: a group "
            "has several trunks, each with its branches"
        )


def _check_engine(config: Any) -> None:
    entry = choose(config.engine, training=True)
    if config.ray.workers and not config.engine.urls:
        raise ValueError(
            "ray.workers need servers that their machines reach, which you start yourself and name "
            f"in engine.urls; engine {entry.name!r} is on this machine only"
        )


def _check_accelerator(config: Any) -> None:
    if str(getattr(config.optim, "value", config.optim)).startswith(_OTHER_OPTIMIZERS):
        raise ValueError(f"optim={config.optim.value!r} is not supported here; use another one")
    options = config.accelerator_config
    bad = [name for name in ("split_batches", "dispatch_batches") if getattr(options, name)]
    if "num_steps" in (options.gradient_accumulation_kwargs or {}):
        bad.append("num_steps")
    if bad:
        raise ValueError(
            f"accelerator_config: {bad[0]} is not supported here, it breaks groups apart"
        )


# -- the metric that selects the best model --------------------------------------------------------

_ADAPTIVE = ("reduce_lr_on_plateau", "greedy")


def _choose_metric(args: Any) -> None:
    """Select by the reward if a metric is needed and none is named (transformers would use the
    loss, which our evaluations do not compute). Raises ValueError if the loss is named."""
    if args.metric_for_best_model is None:
        if args.load_best_model_at_end or args.save_strategy == "best" or _adapts(args):
            args.metric_for_best_model = "reward"
    elif args.metric_for_best_model.endswith("loss"):
        raise ValueError(
            f"metric_for_best_model={args.metric_for_best_model!r}: an evaluation plays tasks and "
            "computes no loss; name what it logs ('reward', 'win_rate', ...) or leave it None for "
            "the reward"
        )


def _choose_mode(args: Any) -> None:
    """Tell a metric-dependent learning rate schedule whether a higher metric is better; torch's
    default is that lower is better."""
    if _adapts(args):
        mode = "max" if args.greater_is_better else "min"
        args.lr_scheduler_kwargs = {"mode": mode} | dict(args.lr_scheduler_kwargs or {})


def _adapts(args: Any) -> bool:
    return str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)) in _ADAPTIVE
