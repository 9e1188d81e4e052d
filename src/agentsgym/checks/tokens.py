"""check_tokens: what the library records of conversations with a tokenizer."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsgym.checks.playing import ActionChoice, play_in_turn, random_player
from agentsgym.checks.token_report import RecordedTalk, TokenReport, recorded
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.dataset import tasks_of
from agentsgym.runs.builtin import builtin_folder
from agentsgym.tokens import ActionText, TemplateCodec, inspect_calls, inspect_tokenizer
from agentsgym.tokens.plain import end_of_text
from agentsgym.tokens.speech import sampled_answer, thoughts_are_off
from agentsgym.tokens.template import LOOK_UP
from agentsgym.types import GenerationRequest, GenerationResult, Tokenizer

SYSTEM_PROMPT = "You answer in one sentence."
OBSERVATIONS = (
    "Think of an animal. I ask, you answer.",
    "No, it is larger than that.",
    "Yes. Can it swim?",
    "No. One more.",
)
ANSWERS = ("A mouse, maybe?", "Then it is a horse.", "It can, a little.", "I would say: a cow.")
_WAYS = ((False, "plain answers"), (True, "answers that think"))
_TAIL = 16  # tokens of a prompt in which its end is looked for


class ScriptedTalk(MultistepEnv):
    """Says `OBSERVATIONS`, one in each step."""

    def _initialize_episode(self, session_id: str, task_data: dict[str, Any]) -> dict[str, Any]:
        return {"played": 0}

    def _format_prompt(self, state: dict[str, Any], step: int) -> str:
        return OBSERVATIONS[min(step, len(OBSERVATIONS) - 1)]

    def _step_episode(
        self, session_id: str, state: dict[str, Any], action: str
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        played = state["played"] + 1
        return {"played": played}, 0.0, played >= len(OBSERVATIONS), {}


def scripted(env: MultistepEnv, request: GenerationRequest, number: int) -> str:
    """A player that gives `ANSWERS`."""
    turn = sum(message.role == "assistant" for message in request.messages)
    return ANSWERS[turn % len(ANSWERS)]


@dataclass(slots=True)
class Speaker:
    """Gives the answers of `player` as if an engine had sampled them, with thoughts if `thinks`.

    `sampled` has the ids of all answers, `thoughts` counts the thoughts; `muted` says that a prompt
    turned thoughts off.
    """

    player: ActionChoice
    thinks: bool = False
    sampled: list[int] = field(default_factory=list)
    thoughts: int = 0
    muted: bool = False

    def __call__(
        self, env: MultistepEnv, request: GenerationRequest, number: int
    ) -> GenerationResult:
        assert env.tokenizer is not None and env.codec is not None
        ids = self._sampled(env, env.tokenizer, request) + env.codec.turn_end
        self.sampled += ids
        ends = (*env.codec.turn_end, *end_of_text(env.tokenizer))
        text = ActionText(env.tokenizer, ends)(ids)
        return GenerationResult(request.session_id, ids, (0.0,) * len(ids), text)

    def _sampled(
        self, env: MultistepEnv, tokenizer: Tokenizer, request: GenerationRequest
    ) -> tuple[int, ...]:
        answer = self.player(env, request, 0)
        prompt = tokenizer.decode(list(request.token_ids[-_TAIL:]))
        text = sampled_answer(tokenizer, prompt, answer, self._thought(prompt))
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    def _thought(self, prompt: str) -> str:
        self.muted = self.muted or thoughts_are_off(prompt)
        if not self.thinks or self.muted:
            return ""
        self.thoughts += 1
        return f"I look at number {self.thoughts} first."


def check_tokens(
    tokenizer: Tokenizer,
    template_options: Mapping[str, Any] | None = None,
    env: MultistepEnv | None = None,
) -> TokenReport:
    """Play scripted conversations with a tokenizer and report what is recorded.

    `template_options` are extra arguments of its chat template, as `codec_for` takes them. With
    `env`, also an episode of this environment is played, by a random player.

    Raises ValueError, as `codec_for` does, for a template that cannot be used.
    """
    options = dict(template_options or {})
    played = _played(env.with_tokenizer(tokenizer, options)) if env else ()
    return TokenReport(
        check=inspect_tokenizer(tokenizer, options),
        calls=inspect_calls(tokenizer, options),
        conversations=(*_talks(tokenizer, options), *played, *_variants(tokenizer, options)),
    )


def _talks(tokenizer: Tokenizer, options: Mapping[str, Any]) -> Iterator[RecordedTalk]:
    """The scripted conversation with plain answers, and with answers that think."""
    env = ScriptedTalk().with_tokenizer(tokenizer, options)
    for thinks, name in _WAYS:
        yield from _play(name, env, {}, Speaker(scripted, thinks))


def _variants(tokenizer: Tokenizer, options: Mapping[str, Any]) -> Iterator[RecordedTalk]:
    """It with a system prompt, and with tools if the template reads them."""
    env = ScriptedTalk(None, {"system_prompt": SYSTEM_PROMPT}).with_tokenizer(tokenizer, options)
    yield from _play("a system prompt", env, {}, Speaker(scripted))
    codec = env.codec
    if isinstance(codec, TemplateCodec) and "tools" in codec.template.variables:
        env = ScriptedTalk().with_tokenizer(tokenizer, {**options, "tools": [LOOK_UP]})
        yield from _play("tools", env, {}, Speaker(scripted))


def _played(env: MultistepEnv) -> Iterator[RecordedTalk]:
    """An episode of an environment, with plain answers and with answers that think."""
    task = dict(tasks_of(env, "eval")["task_data"][0])
    for thinks, name in _WAYS:
        speaker = Speaker(random_player(0, nonsense=0.0), thinks)
        yield from _play(f"{env.name}, {name}", env, task, speaker)


def _play(name: str, env: MultistepEnv, task: Any, speaker: Speaker) -> Iterator[RecordedTalk]:
    """The record of a conversation; none of thoughts that the prompt turns off."""
    (rollout,) = play_in_turn(env, [task], speaker)
    if not (speaker.thinks and speaker.muted):
        yield recorded(name, env, rollout, speaker.sampled)


@functools.cache
def byte_tokenizer(chat: bool, tools: bool = False) -> Any:
    """A byte-level tokenizer, the quickstart's, with its chat template, or one that also shows
    tools, or without."""
    from transformers import AutoTokenizer

    from agentsgym.warm_start.tiny import TOOL_TEMPLATE

    tokenizer = AutoTokenizer.from_pretrained(builtin_folder("quickstart"))
    if tools or not chat:
        tokenizer.chat_template = TOOL_TEMPLATE if tools else None
    return tokenizer
