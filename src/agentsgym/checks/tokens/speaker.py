"""A scripted player whose answers have the ids and the text that an engine would return."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsgym.checks.players import Player
from agentsgym.envs.base import MultistepEnv
from agentsgym.rollout.drive import advance
from agentsgym.rollout.session import Session
from agentsgym.rollout.trial import play_trial
from agentsgym.tokens import ActionText, Codec
from agentsgym.tokens.answers import sampled_answer, thoughts_are_off
from agentsgym.types import (
    GenerationRequest,
    GenerationResult,
    Rollout,
    RolloutRequest,
    Tokenizer,
)

_TAIL = 16  # tokens of a prompt in which its end is looked for


@dataclass(slots=True)
class Speaker:
    """Plays the answers of `player` as if an engine had sampled them, with thoughts if `thinks`.

    `encode` makes an answer's ids (None: the tokenizer, special tokens included). `said` has the
    ids of all answers, `thoughts` the texts of all thoughts; `muted` says that a prompt turned
    thoughts off.
    """

    player: Player
    thinks: bool = False
    encode: Callable[[str], Sequence[int]] | None = None
    said: list[int] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    muted: bool = False

    def play(self, env: MultistepEnv, task: Any) -> Rollout:
        """One trial of a task."""
        assert env.tokenizer is not None and env.codec is not None
        read = _action_text(env.tokenizer, env.codec)
        asked = RolloutRequest(env.class_path, env.env_config, task, 0, 0, 0, "tokens-00000")
        trial = play_trial(Session(env, asked))
        outcome = advance(trial, None)
        while isinstance(outcome, GenerationRequest):
            ids = self._sampled(env, env.tokenizer, outcome) + env.codec.turn_end
            self.said += ids
            noughts = (0.0,) * len(ids)
            answer = GenerationResult(outcome.session_id, ids, noughts, read(ids))
            outcome = advance(trial, answer)
        return outcome

    def _sampled(
        self, env: MultistepEnv, tokenizer: Tokenizer, request: GenerationRequest
    ) -> tuple[int, ...]:
        answer = self.player(env, request, 0)
        if self.encode is not None:
            return tuple(self.encode(answer))
        prompt = tokenizer.decode(list(request.token_ids[-_TAIL:]))
        text = sampled_answer(tokenizer, prompt, answer, self._thought(prompt))
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    def _thought(self, prompt: str) -> str:
        self.muted = self.muted or thoughts_are_off(prompt)
        if not self.thinks or self.muted:
            return ""
        self.thoughts.append(f"I look at number {len(self.thoughts)} first.")
        return self.thoughts[-1]


def _action_text(tokenizer: Tokenizer, codec: Codec) -> ActionText:
    end = tokenizer.eos_token_id
    return ActionText(tokenizer, {*codec.turn_end, *(() if end is None else (end,))})
