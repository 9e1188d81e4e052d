"""One session: all data of a running rollout except the environment's own state.

Texts of environments and agents enter the record here: their lone surrogates become U+FFFD, because
tokenizers and files do not accept them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentsgym.envs.base import MultistepEnv
from agentsgym.tokens import Tree
from agentsgym.tokens.choices import choices_of
from agentsgym.tokens.grammars import Grammar, grammar_of
from agentsgym.types import (
    ActionKind,
    Answer,
    Episode,
    GenerationRequest,
    GenerationResult,
    Message,
    ModelCall,
    Prompt,
    RolloutRequest,
    SamplingParams,
    Step,
    TrialInfo,
)
from agentsgym.types.choices import Answers
from agentsgym.types.foreign import listed
from agentsgym.types.messages import count_calls, spoken
from agentsgym.types.text import clean_text, short_repr
from agentsgym.types.tool_actions import acting, plain_act, said

MOST_TOKENS = 1 << 20
"""The noise of a branch has so many places for the tokens of each node."""


class SessionError(RuntimeError):
    """An environment or agent failed in one session; the message says how."""


def checked_actions(value: Any) -> list[str] | None:
    """The actions that `admissible_actions` returned. Raises SessionError unless they are a list,
    a tuple or an array of texts, or None: a set has another order in every process."""
    if value is None:
        return None
    actions = listed(value)
    if actions is None or not all(isinstance(action, str) for action in actions):
        raise SessionError(f"admissible_actions must return a list of str, got {short_repr(value)}")
    return [*actions]


@dataclass(slots=True, eq=False)
class Session:
    """A running rollout: `request` is played in `host` by an agent with the settings `sampling`.
    `host` is the environment, or its proxy if it is played in worker processes. A
    `PrivilegedAgent` sees a session as a `SessionView`.

    What the next action answers is a text of the environment, its messages, or a program's `call`;
    `tree` has all that was read and answered. `episodes` are finished; `episode` is the number of
    the running one, to which `steps` belong, and `trial` is its position in its trial (without the
    environment's state). `carried` is the text of earlier episodes for its first prompt, `opening`
    that prompt as the agent read it; `notes` counts its notes. `context_limit` is the task's.
    `grammar` has the answers of the form that the call demands, and `exact` says whether the engine
    can hold an answer to one. `action_kind` is the kind of the last request. `sampled_tokens`
    counts the tokens sampled so far, each with its own noise. `error` is set when the rollout has
    failed.
    """

    host: MultistepEnv
    request: RolloutRequest
    sampling: SamplingParams = field(default_factory=SamplingParams)
    tree: Tree = field(init=False)
    trial: TrialInfo = field(init=False)
    episode: int = 0
    agent_state: Any = None
    action_kind: ActionKind = "action"
    sampled_tokens: int = 0
    carried: str = ""
    opening: str = ""
    notes: int = 0
    context_limit: int | None = field(init=False)
    call: ModelCall | None = None
    grammar: Grammar | None = None
    exact: bool = True
    steps: list[Step] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    error: str | None = None

    def __post_init__(self) -> None:
        self.tree = Tree(self.host.codec, self.env.tool_schemas)
        self.trial = self.host.trial_info()
        self.context_limit = self.env.config.limit_for(self.task_data)

    @property
    def env(self) -> MultistepEnv:
        """The environment: its configuration and its planner."""
        return self.host.unwrapped

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(step.action for step in self.steps if step.kind == "action")

    @property
    def acted(self) -> int:
        """The number of the agent's actions in the running episode."""
        return len(self.steps) - self.notes

    @property
    def asks_for_note(self) -> bool:
        return self.action_kind == "reflection"

    @property
    def messages(self) -> list[Message]:
        return self.tree.messages

    def admissible_actions(self) -> Sequence[str] | None:
        return checked_actions(self.host.admissible_actions(self.state))

    @property
    def session_id(self) -> str:
        return self.request.session_id

    @property
    def task_data(self) -> Mapping[str, Any]:
        return self.request.task_data

    @property
    def state(self) -> Any:
        return self.host.active_states[self.request.session_id]

    def begin_episode(self, episode: int, *, carried: str = "", go_on: bool = False) -> None:
        """Start an episode: with an empty conversation and a new row, or, with `go_on`, in the
        conversation and row of the previous one. `carried` comes before its first prompt."""
        self.episode = episode
        self.carried = carried
        self.steps, self.notes = [], 0
        if not go_on:
            self.tree.restart()

    def told(self, prompt: str | Sequence[Mapping[str, Any]]) -> list[Message]:
        """What the environment says in the running conversation. The k-th message of the role tool
        answers the k-th call of the answer before it, and a text answers each of the calls."""
        calls = self.messages[-1].tool_calls if self.messages else ()
        if isinstance(prompt, str):
            named = [Message("tool", prompt, name=call["function"]["name"]) for call in calls]
            prompt = named or [Message("user", prompt)]
        numbers = iter([call["id"] for call in calls])
        messages = []
        for message in map(Message.of, prompt):
            number = message.tool_call_id
            if message.role == "tool" and number is None:
                number = next(numbers, None)
            text = clean_text(message.content)
            if text is not message.content or number is not message.tool_call_id:
                message = replace(message, content=text, tool_call_id=number)
            messages.append(message)
        return messages

    def observe(self, prompt: Prompt, most: int | None = None) -> bool:
        """Add what the environment says if the budget leaves room for an answer, and the context
        then has at most `most` tokens; otherwise nothing is added and the result is False. Raises
        ValueError, with nothing added, for a call that the agent can't be shown."""
        if isinstance(prompt, ModelCall):
            codec, tokenizer, grammar = self.host.codec, self.env.tokenizer, None
            if codec is not None and tokenizer is not None:
                grammar = grammar_of(codec, tokenizer, prompt, exact=self.exact)
            self.call, self.grammar = self.tree.call(prompt), grammar
        else:
            system = self.env.config.system_prompt if not self.messages else None
            opening = [] if system is None else [Message("system", clean_text(system))]
            self.tree.observe([*opening, *self.told(prompt)])
        left = self.tokens_left()
        if (left is None or left > 0) and (most is None or self._context_length() <= most):
            return True
        self.tree.withdraw()
        return False

    def _context_length(self) -> int:
        """The number of tokens that the next action is conditioned on; where no tokenizer counts
        them, one for every four characters."""
        if self.host.codec is not None:
            return len(self.tree.context)
        return sum(len(message.content) for message in self.messages) // 4

    @property
    def acts(self) -> bool:
        """Whether the agent says its actions as calls of the tool `act`."""
        return self.call is None and self.env.config.action_form == "tool"

    def read(self, result: GenerationResult) -> Answer:
        """What the agent answers. Of sampled ids, the codec's parser says what a call is; words
        that look like one are words. A text agent's are read by `said`, or, with
        `action_form="tool"`, are the action of the call that a model would make."""
        ids, codec, text = result.token_ids, self.tree.codec, clean_text(result.text)
        tools = self.env.tool_schemas if self.call is None else self.call.tools
        if ids is not None and codec is not None and (tools or self.call):
            return Answer.of(result, *codec.answer(ids, count_calls(self.messages)))
        if not tools or ids is not None or self.asks_for_note:
            return Answer.of(result, Message("assistant", text))
        reading = acting if self.acts else said
        return Answer.of(result, reading(text, count_calls(self.messages)))

    def action_of(self, answer: Answer) -> str | Answer | None:
        """What the environment gets of an answer: its text; with tools, and in a program, the
        answer; None if it is not the one call that `action_form="tool"` demands."""
        if self.acts:
            return plain_act(answer)
        if self.call is None:
            return answer if self.env.offers_tools else answer.text
        read = len(self.tree.context) - len(answer.token_ids or ())
        return answer.to_call(self.call, max(0, read), self.env.tokenizer)

    def call_metrics(self, answer: Answer) -> Mapping[str, float]:
        """The numbers of an answer's calls, where the environment does not count them."""
        if self.acts:
            return answer.metrics(executed=int(plain_act(answer) is not None))
        return answer.metrics() if self.call is not None and self.call.tools else {}

    def fits(self, answer: Answer) -> bool:
        """Whether the budget has room for an answer. An engine's always fits, because it is cut."""
        left = self.tokens_left()
        return left is None or len(self.tree.ids_of(answer)) <= left

    def tokens_left(self) -> int | None:
        """How many more tokens the row may have; None without a limit."""
        if self.request.max_rollout_tokens is None:
            return None
        return self.request.max_rollout_tokens - len(self.tree.context)

    def request_action(self, kind: ActionKind = "action") -> GenerationRequest:
        """Request the next action: a reflection may have `reflection_tokens` tokens, an action as
        many as the sampling settings say, and both the rest of the budget. The request sees the
        conversation as it grows."""
        self.action_kind = kind
        request = self.request
        most = self.env.config.reflection_tokens if kind == "reflection" else None
        return GenerationRequest(
            request.session_id,
            self.tree.context,
            self._sampling(most or self.sampling.max_tokens),
            request.seed,
            self.sampled_tokens if request.prefix is None else len(self.tree) * MOST_TOKENS,
            self.messages,
            self._choices() if kind == "action" else None,
        )

    def _choices(self) -> Answers | None:
        """The answers that are allowed. Raises SessionError if there is none, or one that cannot be
        said."""
        if self.call is not None:
            return self.grammar
        codec, tokenizer, most = self.tree.codec, self.env.tokenizer, self.sampling.max_tokens
        form = self.env.config.actions
        if form == "free" or codec is None or tokenizer is None:
            return None
        actions = self.admissible_actions()
        try:
            whole = form == "whole"
            choices = choices_of(codec, tokenizer, actions or (), called=self.acts, whole=whole)
        except ValueError as error:
            raise SessionError(f"{self.where()}: {error}") from error
        if choices.longest > most:
            raise SessionError(
                f"{self.where()}: an admissible action has {choices.longest} tokens, and an action "
                f"has at most {most} (max_action_tokens)"
            )
        return choices

    def _sampling(self, most: int) -> SamplingParams:
        limits = [most, self.tokens_left(), self.call.max_tokens if self.call else None]
        cap = min(limit for limit in limits if limit is not None)
        stop = (*self.sampling.stop, *(self.call.stop if self.call else ()))
        codec = self.tree.codec
        return replace(
            self.sampling,
            max_tokens=cap,
            stop=tuple(dict.fromkeys(stop)),
            stop_token_ids=(*self.sampling.stop_token_ids, *(codec.ends if codec else ())),
        )

    def act(self, answer: Answer) -> int:
        """Record the agent's answer; return its number of agent tokens."""
        self.sampled_tokens += len(answer.token_ids or ())
        return self.tree.act(answer)

    def step(self, said: str | None = None, **made: Any) -> Step:
        """Add the step of the recorded answer, which the environment got as `said` (None: as its
        message says it), with what it made of it."""
        node = self.tree.taken()
        assert node.answer is not None
        own = None if said == spoken(node.answer) else said
        step = Step(len(self.steps), said=own, **node.recorded, **made)
        self.steps.append(step)
        return step

    def where(self) -> str:
        """The position in the run, for error messages."""
        return (
            f"{self.env.name}, session {self.session_id}, episode {self.episode}, "
            f"step {len(self.steps)}, task {short_repr(self.task_data)}"
        )
