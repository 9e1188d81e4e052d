"""The report on a tokenizer: what became of conversations, frozen, printable and as JSON."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentsgym.checks.row_breaks import REASONS, RecordedTalk
from agentsgym.tokens import TokenCheck

Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Stability:
    """`changed` has the sample texts that are another text after encoding and decoding. `kept` is
    the share of samples, texts in other tokens than the tokenizer's own, that encode to the sampled
    tokens again."""

    changed: tuple[str, ...]
    kept: float


@dataclass(frozen=True, slots=True)
class TokenReport:
    """What is recorded of conversations with a tokenizer.

    `check` has the properties of tokenizer and chat template, `conversations` what became of
    conversations without a system prompt and in an environment, `variants` what became of those
    with a system prompt and with tools. `forged` are control tokens that a text became; normally
    none.
    """

    check: TokenCheck
    conversations: tuple[RecordedTalk, ...]
    variants: tuple[RecordedTalk, ...]
    forged: tuple[str, ...]
    stability: Stability

    @property
    def every(self) -> tuple[RecordedTalk, ...]:
        """All conversations."""
        return (*self.conversations, *self.variants)

    @property
    def append_only(self) -> bool:
        """Whether the template begins no row in any conversation that it renders."""
        return not any(one.breaks for one in self.every)

    @property
    def masked(self) -> bool:
        """Whether all agent-token masks are exact."""
        return all(one.masked for one in self.every if not one.refused)

    @property
    def problems(self) -> tuple[str, ...]:
        """What makes the tokenizer unfit for training; new rows only cost time."""
        first = self.conversations[0]
        sentences = {
            f"the chat template refuses a conversation: {first.refused}": bool(first.refused),
            "an agent-token mask is not exact": not self.masked,
            f"a text can forge {', '.join(self.forged)}": bool(self.forged),
        }
        return tuple(sentence for sentence, holds in sentences.items() if holds)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        data: dict[str, Any] = dataclasses.asdict(self)
        written = (*data["conversations"], *data["variants"])
        for one, made in zip(self.every, written, strict=True):
            made["cost"] = round(one.cost, 3)
        return {"append_only": self.append_only, "problems": list(self.problems), **data}

    def to_json(self) -> str:
        """One JSON object on one line."""
        return json.dumps(self.to_dict())

    def lines(self) -> list[Line]:
        """A topic and a sentence for each finding."""
        return [
            ("chat template", self._template()),
            *(line for one in self.every for line in _recorded(one)),
            *self._prompts(),
            ("end of a turn", self._ending()),
            ("masks", self._masks()),
            ("control tokens", self._control()),
            ("decode, encode", self._stability()),
            ("verdict", self._verdict()),
        ]

    def _template(self) -> str:
        if not self.check.has_template:
            return "none: prompts and answers are encoded one by one and joined"
        return "append-only" if self.append_only else "rewrites history"

    def _prompts(self) -> Iterator[Line]:
        if self.check.default_system_prompt:
            own = self.check.default_system_prompt
            yield "system prompt", f"the template adds its own if there is none: {own!r}"
        if self.check.dated:
            yield "date", "the template writes today's date: equal prompts differ from day to day"

    def _ending(self) -> str:
        if not self.check.after_answer:
            return "the template writes no control token after an answer"
        return f"{self.check.after_answer[0]}: the agent samples it, and it is never doubled"

    def _masks(self) -> str:
        if self.masked:
            return "exact: the sampled tokens, each once, and no others"
        return "NOT exact: they do not mark the sampled tokens"

    def _control(self) -> str:
        if self.forged:
            return f"a text can forge {', '.join(self.forged)}"
        return "kept apart: written by a task or an agent as text, they are ordinary text"

    def _stability(self) -> str:
        if self.stability.changed:
            kept = f"another text comes back, for instance of {self.stability.changed[0]!r}"
        else:
            kept = "the text comes back"
        again = f"{self.stability.kept:.0%} of the samples encode to the sampled tokens again"
        rest = "" if self.stability.kept == 1.0 else "; where they carry loss, sampled tokens stay"
        return f"{kept}; {again}{rest}"

    def _verdict(self) -> str:
        if self.problems:
            return f"not fit for training: {'; '.join(self.problems)}"
        worst = max(self.conversations, key=lambda one: one.cost)
        if worst.breaks:
            return (
                f"fit for training, at up to {worst.cost:.1f} times the tokens in {worst.steps} "
                "steps, more in longer episodes; model.chat_template=training, or a template that "
                "only appends, may avoid it"
            )
        return "fit for training: one row for each context"


def _recorded(one: RecordedTalk) -> Iterator[Line]:
    """What became of a conversation."""
    if one.refused:
        yield one.name, f"refused: {one.refused}"
        return
    size = f"{one.tokens} tokens, {one.agent_tokens} of them the agent's"
    if not one.breaks:
        rows = "one row" if one.rows == 1 else f"{one.rows} rows, none of them by the template"
        yield one.name, f"{rows}: {size}"
        return
    reasons = dict.fromkeys(REASONS[one_break.reason] for one_break in one.breaks)
    steps = dict.fromkeys(one_break.step for one_break in one.breaks)
    sentences = (
        f"the template {' and '.join(reasons)}: a new row at {_steps(list(steps))}.",
        f"{one.rows} rows, {size}; {one.one_row_tokens} if it only appended",
        f"({one.cost:.1f} times). The keys of a RolloutBatch hold the last row:",
        f"{one.key_agent_tokens} of the agent's tokens",
    )
    yield one.name, " ".join(sentences)
    first = one.breaks[0]
    yield "", f"was {first.was!r}"
    yield "", f"now {first.now!r}"


def _steps(steps: list[int]) -> str:
    """For instance "step 1", "steps 1, 2, 3"; steps count from 0."""
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))} (from 0)"
