"""MultistepEnv: the methods that an author overrides, and the methods that play."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from agentsgym.envs.settings import EnvSettings, read_settings, remember_own
from agentsgym.tokens import Codec, codec_for
from agentsgym.types import Agent, EpisodeOutcome, Prompt, RolloutBatch, Tokenizer, TrialInfo
from agentsgym.types.messages import ToolSchema
from agentsgym.types.names import ConfigError
from agentsgym.types.text import short_repr
from agentsgym.types.tool_actions import ACT

UNINFORMED = "best without exploring"
"""The name in `MultistepEnv.other_references` of the best play that never informs itself."""


class MultistepEnv:
    """A multi-turn text environment that serves many sessions at once.

    An author overrides `_initialize_episode`, `_format_prompt` and `_step_episode`, optionally
    `_calculate_reward`, `get_train_dataset` and `get_eval_dataset`, and declares its settings in a
    class `Settings(EnvSettings)`. All data of a session is in its state; randomness comes from
    `task_data["seed"]`, never from global random state. It may also define what is known about
    playing it: a reference score, a best player, a teacher.

    Args:
        tokenizer: a Hugging Face tokenizer; None for play and evaluation by text.
        env_config: settings, constant across tasks. Unknown keys and bad values raise
            `ConfigError` with the key and the allowed values.
    """

    Settings: ClassVar[type[EnvSettings]] = EnvSettings
    """The environment's settings; `config` is an object of this class, made from `env_config`."""

    config: EnvSettings

    blocking: ClassVar[bool] = False
    """Whether `_step_episode` waits for something external; then it runs in threads."""

    most_sessions: int | None = None
    """How many of its sessions a run opens at once, if an engine plays them; None: no limit."""

    reward_range: tuple[float, float] = (float("-inf"), float("inf"))
    """Bounds of an episode's reward."""

    trusts_tasks: bool = False
    """Whether a task may name any file, and not only those in the directories of the configuration;
    only the caller decides it (`make(…, trust=True)`, or for `run_trial` by handing the task over),
    never a dataset row."""

    special_tokens_meant: ClassVar[bool] = False
    """Whether special tokens in the environment's texts are intended. By default they become
    ordinary text, as they always do in the agent's text, so that no text can forge a turn."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Raises TypeError for `Settings` that lack those of a base class."""
        super().__init_subclass__(**options)
        for base in cls.__mro__[1:]:
            inherited = vars(base).get("Settings")
            if inherited is not None and not issubclass(cls.Settings, inherited):
                raise TypeError(
                    f"{cls.__name__}.Settings must extend {base.__name__}'s: "
                    f"class Settings({base.__name__}.Settings)"
                )

    def __init__(
        self, tokenizer: Tokenizer | None = None, env_config: Mapping[str, Any] | None = None
    ) -> None:
        if not isinstance(env_config, Mapping | None):
            raise ConfigError(
                f"{self.name}: env_config must be a dict, got {short_repr(env_config)}"
            )
        self.tokenizer = tokenizer
        self.env_config: dict[str, Any] = dict(env_config or {})
        self.config = read_settings(self.name, self.Settings, self.env_config)
        if self.config.actions != "free" and not overrides(self, "admissible_actions"):
            raise ConfigError(
                f"{self.name}: env_config.actions must be 'free', for the environment does not "
                "list the actions of a state (admissible_actions)"
            )
        remember_own(self.Settings, self.env_config)
        self.codec = self._codec_for(tokenizer, None)
        self.active_states: dict[str, Any] = {}
        self.active_sessions: dict[str, Any] = {}  # of `_run_complete_episode` calls
        self._set_up()

    # -- methods that an author overrides -------------------------------------------------------

    def _set_up(self) -> None:
        """Prepare what `self.config` asks for. Called once, when the environment is made."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> Any:
        """The state at the start of an episode of this task."""
        raise NotImplementedError(f"{self.name} must define _initialize_episode")

    def _begin_episode(self, session_id: str, task_data: dict[str, Any], trial: TrialInfo) -> Any:
        """The state at the start of an episode whose position in its trial is `trial`.

        Override it if the episodes of a trial differ, or if an episode needs the last state of the
        previous one (`trial.last_state`). By default all episodes start alike.
        """
        return self._initialize_episode(session_id, task_data)

    def _format_prompt(self, state: Any, step: int) -> Prompt:
        """The agent's prompt before its action number `step` (from 0 in each episode): a text, or
        the messages that follow its last answer."""
        raise NotImplementedError(f"{self.name} must define _format_prompt")

    def _step_episode(
        self, session_id: str, state: Any, action: Any
    ) -> tuple[Any, float, bool, dict[str, Any]]:
        """Answer an action with (next state, step reward, done, info). The action is a text; where
        the agent calls tools (`tool_schemas`), it is an `Answer`.

        Keys of `info` with a meaning: `malformed` (bool), `win` (bool, on the last step),
        `stop_reason` (str, on the last step), `anchor` (str, equal for equal next states),
        `token_rewards` (one float per agent token), `metrics` (name to float, averaged in logs),
        `informing` (bool: the action told the agent something new about the task; logs then have
        the share of such actions, see `evaluation.metrics`).
        """
        raise NotImplementedError(f"{self.name} must define _step_episode")

    def _calculate_reward(
        self, state: Any, actions: Sequence[str], final_action: str, step_rewards: Sequence[float]
    ) -> float:
        """The episode's reward; the part beyond the sum of the steps goes to the last step."""
        return sum(step_rewards)

    def _end_episode(self, session_id: str, state: Any) -> None:
        """Close what the last state of an episode holds open: a process, a connection, a file.

        Called exactly once for each episode that began, however it ends: done, at a limit, with an
        exception of the environment or the agent, or because the run ends. After an exception in
        `_step_episode`, `state` is the one that it was called with. An override of
        `_begin_episode` takes over `trial.last_state`; then only the last episode's state of a
        session comes here. An exception is logged and changes no rollout.
        """

    def _format_answer(self, state: Any, step: int) -> str:
        """The answer to an episode's last action, however it ended, which the agent reads before
        `_format_result` or `_format_reflection`.

        By default what `_format_prompt` would say before action number `step`, and "" in an
        environment that overrides `_format_result`, which then says it all. An exception here only
        means that there is no answer.
        """
        if overrides(self, "_format_result"):
            return ""
        prompt = self._format_prompt(state, step)
        return prompt if isinstance(prompt, str) else ""

    def _format_result(self, state: Any, reward: float) -> str:
        """The agent's text about a finished episode, after the answer to its last action and before
        the next episode's first prompt (`carry="full"`)."""
        return f"The episode is over. Reward: {reward:g}."

    def _format_reflection(self, state: Any, reward: float) -> str:
        """The request to reflect on a finished episode, after the answer to its last action
        (`carry="summary"`)."""
        return (
            f"{self._format_result(state, reward)} Write down briefly what helps you to do better "
            "in the next episode on the same task."
        )

    def _format_note_request(self, state: Any, step: int) -> str:
        """The request for a note before action number `step` of an episode whose conversation is
        full (`context_limit`). The answer to the last action follows in the next conversation,
        after the episode's first prompt and the note."""
        return "This conversation is full. Write down briefly what you need to know to go on."

    def _format_memory(self, reflection: str) -> str:
        """The agent's own reflection or note, as shown in the conversation that follows it."""
        return f"Your notes: {reflection}"

    def get_train_dataset(self) -> Any:
        """Training tasks: a `datasets.Dataset` with the columns of `task_rows`."""
        raise NotImplementedError(f"{self.name} defines no training tasks (get_train_dataset)")

    def get_eval_dataset(self) -> Any:
        """Evaluation tasks, disjoint from the training tasks."""
        raise NotImplementedError(f"{self.name} defines no evaluation tasks (get_eval_dataset)")

    def check_task(self, task_data: Mapping[str, Any]) -> str | None:
        """The problem with a task in words, or None. It is called for every row before training,
        so it must be fast."""
        return None

    # -- what is known about playing it; all of this is optional --------------------------------

    def reference_score(self, task_data: Mapping[str, Any]) -> float | None:
        """Expected reward of the best known play on this task; None if unknown."""
        return None

    def other_references(self, task_data: Mapping[str, Any]) -> Mapping[str, float]:
        """Expected rewards of other players on this task, by a name in words, which a run shows
        beside the best known play. With `UNINFORMED`, evaluations of suites show the share of the
        value of information."""
        return {}

    def optimal_agent(self) -> Agent | None:
        """The best known player; None if there is none."""
        return None

    def teacher_agent(self, *, seed: int = 0) -> Agent | None:
        """The player that a warm start imitates; None: a random player of admissible actions."""
        return None

    def admissible_actions(self, state: Any) -> Sequence[str] | None:
        """All legal actions in a state, each once; None if the environment does not list them.

        The list is a promise: an action in it is neither malformed nor an error, and any other
        action that the environment would accept is another wording of one in it. So it leaves
        nothing out that is legal but useless. It depends on what the agent may know: a wrong guess
        is legal. `agentsgym check` looks for breaches by playing.
        """
        return None

    def example_action(self, state: Any) -> str | None:
        """A legal action in the first state of an episode, for the prompt (`explain_actions`); by
        default the first admissible one. It must not tell more about the solution than the
        prompt."""
        listed = self.admissible_actions(state)
        return None if listed is None else next(iter(listed), None)

    # -- names and configuration ----------------------------------------------------------------

    @property
    def name(self) -> str:
        """The registered name; if there is none, the class's name."""
        from agentsgym.envs.registry import registered_name

        return registered_name(type(self)) or type(self).__name__

    @property
    def class_path(self) -> str:
        """The name of this environment in a dataset row: its registered name or dotted path."""
        from agentsgym.envs.registry import registered_name

        return registered_name(type(self)) or f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def tool_schemas(self) -> Sequence[ToolSchema]:
        """The tools that the agent may call. With tools, an action reaches `_step_episode` as an
        `Answer`; but with `action_form="tool"` there is one tool, and its argument is the
        action."""
        return (ACT,) if self.config.action_form == "tool" else ()

    @property
    def offers_tools(self) -> bool:
        """Whether conversations may have tools: these, or those of a program's calls."""
        return bool(self.tool_schemas)

    @property
    def unwrapped(self) -> "MultistepEnv":
        """The environment itself, also if this object represents one in worker processes."""
        return self

    def with_tokenizer(
        self, tokenizer: Tokenizer | None, template_options: Mapping[str, Any] | None = None
    ) -> Self:
        """A copy with another tokenizer and its own sessions; it shares everything else with this
        object.

        `template_options` are extra arguments of the tokenizer's chat template, for instance
        `{"enable_thinking": False}`; the key `"chat_template"` replaces the template.
        """
        other = copy.copy(self)
        other.tokenizer = tokenizer
        other.codec = self._codec_for(tokenizer, template_options)
        other.active_states, other.active_sessions = {}, {}
        return other

    def _codec_for(
        self, tokenizer: Tokenizer | None, options: Mapping[str, Any] | None
    ) -> Codec | None:
        if tokenizer is None:
            return None
        codec = codec_for(tokenizer, options, special_tokens_meant=self.special_tokens_meant)
        try:
            return codec.with_tools(self.tool_schemas)
        except ValueError as error:
            raise ConfigError(f"{self.name}: {error}") from None

    def trial_info(
        self, outcomes: Sequence[EpisodeOutcome] = (), last_state: Any = None
    ) -> TrialInfo:
        """The information available at the start of the episode that follows those with
        `outcomes`, in a trial of this configuration."""
        return TrialInfo(
            episode=len(outcomes),
            episodes=self.config.episodes_per_trial,
            free_shots=self.config.free_shots,
            carry=self.config.carry,
            outcomes=tuple(outcomes),
            last_state=last_state,
        )

    # -- playing --------------------------------------------------------------------------------

    def run_trial(
        self,
        task_data_list: Iterable[Mapping[str, Any]],
        agent: Agent,
        num_rollouts: int = 1,
        return_all_steps: bool = False,
        *,
        seed: int = 0,
    ) -> RolloutBatch:
        """Play `num_rollouts` trials on each task and return them task by task.

        An engine-backed agent plays all sessions at once. For other agents, and if an environment
        overrides it, `_run_complete_episode` is called once per task, rollout and episode. A
        session that fails keeps its place with an all-zero mask and its traceback
        (`batch.rollouts[k].error`); if all fail, a warning is logged.

        Args:
            task_data_list: tasks, or rows of this environment's datasets.
            agent: the player.
            num_rollouts: trials on each task.
            return_all_steps: whether the batch also has the nested keys of steps.
            seed: seed of the sampling noise, which depends only on it, the task's number and the
                rollout's number. Equal seeds give equal rollouts with equal `session_ids`; use
                another seed for new rollouts on the same tasks.

        Raises ValueError for a row of another environment or configuration, TypeError for a task
        that is not a dict.
        """
        from agentsgym.rollout import run_env

        return run_env(
            self,
            task_data_list,
            agent,
            num_rollouts,
            seed=seed,
            all_steps=return_all_steps,
        )

    def _run_complete_episode(self, session_id: str, agent: Agent) -> dict[str, Any]:
        """Play the episode whose state is `active_states[session_id]` to its end.

        Returns unpadded lists of one length T: `full_token_ids`, `full_attention_mask`,
        `agent_token_mask`, `per_token_rewards`; the float `final_reward`; the conversation as
        `final_completion_messages`; and the `episode` itself (an `Episode`). An override may
        change the two rewards, or omit `episode` and return its own tokens. It is called for every
        agent, so an environment that overrides it plays one episode at a time, also with an engine.
        """
        from agentsgym.rollout.drive import run_complete_episode

        return run_complete_episode(self, session_id, agent)


def overrides(env: MultistepEnv, method: str) -> bool:
    """Whether the class of an environment, or the object itself, defines a method of its own."""
    default = getattr(MultistepEnv, method, None)
    return getattr(type(env), method, None) is not default or method in vars(env)
