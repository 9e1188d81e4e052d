"""GRPOEnvConfig: TRL's GRPOConfig and what training on environments adds to it."""

from dataclasses import dataclass, field
from typing import Any

import torch
from trl import GRPOConfig

from agentsgym.credit import ESTIMATORS, find_estimator
from agentsgym.generation.factory import ENGINES
from agentsgym.generation.settings import EngineSettings
from agentsgym.training import setting_parsers as given
from agentsgym.training.checkpoints import choose_metric, choose_mode
from agentsgym.training.loss.ratios import RATIO_SCOPES
from agentsgym.training.setting_combinations import check_combinations
from agentsgym.training.setting_ranges import check_fields
from agentsgym.training.trl_settings import refuse_settings
from agentsgym.types.text import masked

_EVAL_ROLLOUTS = 1


def _engine_names() -> str:
    return ", ".join(repr(entry.name) for entry in ENGINES.values() if entry.training)


@dataclass
class GRPOEnvConfig(GRPOConfig):  # type: ignore[misc]
    """Settings of `GRPOEnvTrainer`.

    TRL's names keep their meaning; `per_device_train_batch_size` counts rollouts,
    `num_generations` is the number of rollouts of a task, `scale_rewards` belongs to the "grpo"
    estimator. docs/settings.md says of each setting whether it is used. Raises ValueError for a
    value outside its range, for a setting that would be ignored, and for a combination that would
    train something else than asked.
    """

    max_completion_length: int | None = field(
        default=None, metadata={"help": "TRL's name of max_action_tokens."}
    )
    # TRL's fields, of which versions of TRL have different defaults.
    use_bias_correction_kl: bool = field(
        default=True, metadata={"help": "Whether KL is weighted by the importance ratio."}
    )
    router_aux_loss_coef: float | None = field(
        default=None,
        metadata={
            "help": "Weight of the experts' load-balancing loss; None: the model's own weight."
        },
    )

    advantage_estimator: str = field(
        default="grpo",
        metadata={
            "help": "How credit is assigned: "
            + "; ".join(f"'{e.name}', {e.help}" for e in ESTIMATORS.values())
            + "; or the dotted path of a function."
        },
    )
    advantage_options: dict[str, Any] | str | None = field(
        default_factory=dict, metadata={"help": "Options of the estimator, or JSON of them."}
    )
    scale_step_rewards: str = field(
        default="none",
        metadata={
            "help": "'batch' divides each environment's step rewards by the standard deviation of "
            "its final rewards in the batch, before credit is assigned."
        },
    )
    train_on: str = field(
        default="rollout",
        metadata={
            "help": "'rollout': one row where the context only grows; 'steps': a row per step."
        },
    )
    ratio_scope: str = field(
        default="token",
        metadata={
            "help": "Scope of the importance ratio: "
            + "; ".join(f"'{scope.name}', {scope.help}" for scope in RATIO_SCOPES.values())
            + "."
        },
    )
    sampler_correction: str = field(
        default="truncate",
        metadata={
            "help": "Correct for an engine whose probabilities differ from the trainer's: "
            "'truncate' the token's ratio at `sampler_cap`, or 'none'."
        },
    )
    sampler_cap: float = field(default=2.0, metadata={"help": "See sampler_correction."})
    train_truncated_actions: bool = field(
        default=True,
        metadata={"help": "Whether actions that the token cap cut off carry loss."},
    )
    zero_signal_groups: str = field(
        default="keep",
        metadata={
            "help": "Groups whose advantages are all zero: 'keep' them, 'drop' them from the "
            "loss's denominators, or 'resample' them with other tasks."
        },
    )
    max_resample_rounds: int = field(
        default=2, metadata={"help": "How often 'resample' plays other tasks at most."}
    )
    # None until __post_init__, which has to know what was given.
    max_action_tokens: int = field(
        default=None,  # type: ignore[assignment]
        metadata={"help": f"Token cap of one action; by default {given.ACTION_TOKENS}."},
    )
    max_rollout_tokens: int | None = field(
        default=None, metadata={"help": "Token cap of a row: what does not fit is not played."}
    )
    stop_strings: list[str] = field(
        default_factory=list, metadata={"help": "Texts that end an action."}
    )
    chat_template: str = field(
        default="own",
        metadata={
            "help": "'own': the tokenizer's chat template; 'training': the one that TRL brings "
            "for it, which only appends where the own one rewrites earlier turns."
        },
    )
    token_records: int = field(
        default=8,
        metadata={
            "help": "Rollouts of each generation and process whose tokens are stored with the "
            "trainer's log-probabilities, importance ratios and entropies, for `agentsgym view`."
        },
    )
    max_tokens_per_forward: int = field(
        default=16384,
        metadata={"help": "Padded tokens in one forward pass of the loss; bounds memory."},
    )
    loss_norm_tokens: int | None = field(
        default=None,
        metadata={"help": "Denominator of 'dr_grpo'; None: max_rollout_tokens."},
    )
    engine: str | None = field(
        default=None,
        metadata={
            "help": f"Which engine samples the actions: {_engine_names()}; None: the one that "
            "engine_urls or use_vllm ask for, else the embedded one."
        },
    )
    engine_capacity: int = field(
        default=256, metadata={"help": "Sessions that the engine samples at once."}
    )
    engine_urls: list[str] = field(
        default_factory=list,
        metadata={"help": "Base URLs of running vLLM servers that sample the actions."},
    )
    engine_served_model: str | None = field(
        default=None,
        metadata={"help": "The model's name at engine_urls; None: the servers' first."},
    )
    engine_key_env: str | None = field(
        default=None,
        metadata={
            "help": "The environment variable that holds the key for engine_urls; None sends none."
        },
    )
    engine_launch: int = field(
        default=0,
        metadata={
            "help": "vLLM servers that the trainer starts on this machine and ends itself, one on "
            "each GPU that no learner uses."
        },
    )
    engine_command: str | None = field(
        default=None,
        metadata={
            "help": "What starts them: a vllm executable, or the Python of an environment that has "
            "vLLM; None: the vllm of this environment."
        },
    )
    engine_launch_args: list[str] = field(
        default_factory=list, metadata={"help": "More arguments of `vllm serve` for them."}
    )
    rollout_workers: int = field(
        default=0,
        metadata={
            "help": "Actors of a Ray cluster that play this process's training rollouts, with the "
            "servers of engine_urls; 0: this process plays them (docs/distributed.md)."
        },
    )
    rollout_worker_resources: dict[str, Any] | str | None = field(
        default_factory=dict,
        metadata={
            "help": "What each of them reserves, or JSON of it: num_cpus (1 if not given), "
            "num_gpus, memory in bytes, or a resource of its own name."
        },
    )
    max_staleness: int = field(
        default=0,
        metadata={
            "help": "Up to how many generations sampling may be ahead of learning; no rollout is "
            "older. 0: each generation is sampled and then learned from. More needs an engine that "
            "samples beside the optimizer, 'process' or vLLM servers; sampler_correction corrects "
            "the ratio of what is older."
        },
    )
    min_signal_share: float = field(
        default=0.02,
        metadata={
            "help": "Training stops when the share of groups with signal stays below this for "
            "`min_signal_patience` generations."
        },
    )
    min_signal_patience: int = field(default=20, metadata={"help": "See min_signal_share."})
    eval_rollouts: int = field(
        default=None,  # type: ignore[assignment]
        metadata={"help": f"Rollouts of an evaluation task; by default {_EVAL_ROLLOUTS}."},
    )
    eval_temperature: float = field(default=1.0, metadata={"help": "0 is greedy."})
    max_bad_rows: int = field(
        default=100,
        metadata={
            "help": "Rows of a streamed or large training set that are left out because they name "
            "no task; one more ends training. Sets of up to 100,000 rows are checked before "
            "training starts."
        },
    )
    # In this order, a list of texts on the command line.
    trust: list[str] | str | bool = field(
        default=False,
        metadata={
            "help": "What dataset rows may name beyond registered environments: the modules of "
            "others, or true for any module, file and server."
        },
    )
    allow_truncated_sampling: bool = field(
        default=False,
        metadata={"help": "Train with top-p or top-k although that biases the ratio."},
    )

    def __post_init__(self) -> None:
        if getattr(self, "bf16", None) is None and not self.fp16:
            self.bf16: bool = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        self._read_texts()
        refuse_settings(self)
        check_fields(self)
        choose_metric(self)
        self._check_with_trl()
        choose_mode(self)
        self._read_generation_kwargs()
        self._name_twice("max_action_tokens", "max_completion_length", given.ACTION_TOKENS)
        self._name_twice("eval_rollouts", "num_generations_eval", _EVAL_ROLLOUTS)
        check_fields(self)
        check_combinations(self)

    def _read_texts(self) -> None:
        """Bring what a command line or YAML gives into the shape of the fields."""
        self.stop_strings = given.texts("stop_strings", self.stop_strings)
        self.engine_urls = given.texts("engine_urls", self.engine_urls)
        self.engine_launch_args = given.texts("engine_launch_args", self.engine_launch_args)
        self.trust = given.trust(self.trust)
        self.advantage_options = given.mapping("advantage_options", self.advantage_options)
        self.rollout_worker_resources = given.resources(
            "rollout_worker_resources", self.rollout_worker_resources
        )
        if self.chat_template_kwargs is not None:
            kwargs = given.mapping("chat_template_kwargs", self.chat_template_kwargs)
            self.chat_template_kwargs: dict[str, Any] | None = kwargs
        if isinstance(getattr(self, "scale_rewards", None), bool):  # as TRL takes it
            self._set(scale_rewards="group" if self.scale_rewards else "none")

    def _check_with_trl(self) -> None:
        """TRL's own checks, without two: an evaluation plays tasks itself, so no batch of it must
        be divisible; and a copy of a configuration has both sizes of a generation."""
        per_task, size = self.num_generations_eval, self.generation_batch_size
        both = self.steps_per_generation is not None
        self._set(num_generations_eval=1, generation_batch_size=None if both else size)
        super().__post_init__()
        self._set(num_generations_eval=per_task)
        if size is not None and size != self.generation_batch_size:
            raise ValueError(
                f"generation_batch_size={size} does not agree with steps_per_generation="
                f"{self.steps_per_generation}, which makes it {self.generation_batch_size}"
            )

    def _read_generation_kwargs(self) -> None:
        """Move `generation_kwargs` into the settings of ours that they mean."""
        options = given.mapping("generation_kwargs", self.generation_kwargs)
        for name, value in given.sampling(options).items():
            before = getattr(self, name)
            if before not in (type(self).__dataclass_fields__[name].default, [], value):
                raise ValueError(
                    f"generation_kwargs gives {name}={value!r}, but {name} is {before!r}; "
                    "set one of them"
                )
            self._set(**{name: value})
        self._set(generation_kwargs=None)

    def _set(self, **values: Any) -> None:
        """Set fields that are TRL's, whose types are not known here."""
        for name, value in values.items():
            setattr(self, name, value)

    def _name_twice(self, ours: str, trl: str, default: int) -> None:
        """One setting under our name and TRL's."""
        mine, theirs = getattr(self, ours), getattr(self, trl)
        if mine is not None and theirs is not None and mine != theirs:
            raise ValueError(f"{ours}={mine} and {trl}={theirs} mean the same; set one of them")
        self._set(**{ours: next((v for v in (mine, theirs) if v is not None), default)})

    def to_dict(self) -> dict[str, Any]:
        """The settings as trackers store them, without the credentials in addresses."""
        return {name: masked(value, name) for name, value in super().to_dict().items()}

    @property
    def engine_settings(self) -> EngineSettings:
        """What decides which engine samples."""
        return EngineSettings(
            engine=self.engine,
            engine_urls=tuple(self.engine_urls),
            use_vllm=self.use_vllm,
            engine_capacity=self.engine_capacity,
            served_model=self.engine_served_model,
            key_env=self.engine_key_env,
            launch=self.engine_launch,
            command=self.engine_command,
            launch_args=tuple(self.engine_launch_args),
        )

    @property
    def estimator_options(self) -> dict[str, Any]:
        """`advantage_options`, with TRL's `scale_rewards` for the estimator that it belongs to."""
        options = given.mapping("advantage_options", self.advantage_options)
        if self.estimator_scales:
            return {"scale_rewards": self.scale_rewards, **options}
        return options

    @property
    def estimator_scales(self) -> bool:
        """Whether `scale_rewards` belongs to the estimator."""
        return find_estimator(self.advantage_estimator).takes_scale_rewards

    @property
    def norm_tokens(self) -> int | None:
        """Denominator of "dr_grpo", in tokens."""
        return self.loss_norm_tokens or self.max_rollout_tokens

    @property
    def updates_per_generation(self) -> int:
        """Optimizer steps that one generation feeds; checkpoints fall on their multiples. (TRL's
        `steps_per_generation` counts micro-batches.)"""
        updates: int = self.steps_per_generation // self.gradient_accumulation_steps
        return updates * int(self.num_iterations)
