"""A model that is scripted, and what a rollout must record of what was said to it.

Nothing here knows how the record is made. What a model reads is what the tokenizer's own template
renders of the messages that it was asked with; what it answers, and with which log-probabilities,
is what its script says; and a row goes on where the new text begins with the old one.
"""

import functools
import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from agentsgym.runs.files import RolloutWriter, read_rollouts
from agentsgym.tokens import codec_for
from agentsgym.types import EngineStats, GenerationResult
from chat_tokenizers import template, tokenizer_for
from helpers import CHATML, DROPS_THOUGHT

PLANNED = "as the test planned"
REFUSES = "{% if messages[-1]['content'] == 'No.' %}{{ raise_exception('no') }}{% endif %}"
TOKENIZERS = {
    name: tokenizer_for(text + REFUSES, "<|im_end|>")
    for name, text in {
        "chatml": CHATML,
        "drops": DROPS_THOUGHT,
        "qwen2_5": template("qwen2_5"),
        "qwen3": template("qwen3"),
    }.items()
}
codec_of = functools.cache(codec_for)  # compiling a template takes longer than a play
WORDS = st.sampled_from(["a", "", "two words", "<think>\nhm\n</think>\n\nb", "<think>c</think>d"])
ANSWERS = st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=6)
"""Texts, and whether the end of the turn follows."""


def pairs(messages):
    """Role and text of each message: the record's, or the dicts that an agent gets."""
    return [
        (m["role"], m["content"]) if isinstance(m, dict) else (m.role, m.content) for m in messages
    ]


@dataclass
class Asked:
    """A request, with the role and the text of each message, and its answer; None if there was
    none."""

    messages: list[tuple[str, str]]
    context: list[int] | None
    tools: tuple[Any, ...] = ()
    episode: int = 0
    ids: list[int] | None = None
    logprobs: list[float] = field(default_factory=list)
    text: str = ""

    @property
    def talk(self):
        """The conversation with the answer."""
        return self.messages if self.ids is None else [*self.messages, ("assistant", self.text)]


class Scripted:
    """An engine, and an agent of texts, that says `answers` in turn, each with its number, and
    fails at the number `fails`; `asked` is what it was asked."""

    capacity = 8
    stats = EngineStats()

    def __init__(self, tokenizer, answers, fails=None):
        self.tokenizer, self.answers, self.fails = tokenizer, answers, fails
        self.asked, self._open = [], []

    def _say(self, messages, context, most):
        one = Asked(pairs(messages), context)
        number = len(self.asked)
        self.asked.append(one)
        if number == self.fails:
            return None
        text, ends = self.answers[number % len(self.answers)]
        ids = self.tokenizer.encode(f"{text}{number}", add_special_tokens=False)
        one.ids = (ids + [self.tokenizer.eos_token_id] * ends)[:most]
        one.logprobs = [-1.0 - number - k / 64 for k in range(len(one.ids))]
        one.text = self.tokenizer.decode([i for i in one.ids if i != self.tokenizer.eos_token_id])
        return one

    def submit(self, requests):
        self._open += requests

    def poll(self):
        done, self._open = self._open, []
        return [self._answer(request) for request in done]

    def release(self, session_ids):
        pass

    def _answer(self, request):
        said = self._say(request.messages, list(request.token_ids), request.sampling.max_tokens)
        if said is None:
            return GenerationResult(request.session_id, finish_reason="error", error=PLANNED)
        ids, logprobs = tuple(said.ids), tuple(said.logprobs)
        return GenerationResult(request.session_id, ids, logprobs, said.text)

    def get_action(self, messages, agent_state):
        said = self._say(messages, None, None)
        if said is None:
            raise RuntimeError(PLANNED)
        said.ids = [i for i in said.ids if i != self.tokenizer.eos_token_id]
        said.logprobs = [0.0] * len(said.ids)
        return said.text, agent_state


@dataclass
class ExpectedRow:
    """A row: why it begins, the numbers of the answers that carry loss in it, and its ids."""

    begins: str
    answers: list[int]
    ids: list[int]


def rendered(tokenizer, one):
    """The ids of a conversation as the tokenizer's template shows it."""
    messages = [{"role": role, "content": content} for role, content in one.messages]
    text = tokenizer.apply_chat_template(
        messages, tools=list(one.tools) or None, add_generation_prompt=True, tokenize=False
    )
    return tokenizer.encode(text, add_special_tokens=False)


def expected_rows(tokenizer, asked, origin):
    """The rows of requests in this order. `origin(number)` is the number of the answer that a
    request continues, and why it begins a row if it must."""
    rows, row_of = [], {}
    for number, one in enumerate(asked):
        context = rendered(tokenizer, one)
        assert one.context in (None, context)
        parent, begins = origin(number)
        row = None
        if parent is not None:
            before = rendered(tokenizer, asked[parent]) + asked[parent].ids
            if context[: len(before)] != before:
                begins = "template"
            elif row_of[parent].answers[-1] == parent:
                row = row_of[parent]
            else:
                begins = "branch"
        if row is None:
            row = ExpectedRow(begins, [], [])
            rows.append(row)
        row_of[number] = row
        row.ids = context + (one.ids or [])
        row.answers += [] if one.ids is None else [number]
    return rows


def check(rollout, tokenizer, asked, origin, folder):
    """The rollout's rows and conversations are those of the requests; and so they are when it is
    pickled, or stored and read."""
    assert rollout.error is None or PLANNED in rollout.error
    keys = [(e.index, step.index) for e in rollout.episodes for step in e.steps]
    _check_rows(rollout, expected_rows(tokenizer, asked, origin), asked, keys)
    _check_tape(rollout, asked)
    _check_conversations(rollout, asked, keys)
    RolloutWriter(folder)([rollout], {"phase": "train", "step": 0, "advantages": None})
    (stored,) = read_rollouts(folder)
    for back in (stored, pickle.loads(pickle.dumps(rollout))):
        assert back.rows == rollout.rows and back.conversations() == rollout.conversations()


def _check_rows(rollout, expected, asked, keys):
    assert [row.begins for row in rollout.rows] == [one.begins for one in expected]
    for row, one in zip(rollout.rows, expected, strict=True):
        assert row.token_ids.tolist() == one.ids
        answers = [number for number in one.answers if number < len(keys)]
        assert [span.key for span in row.spans] == [keys[number] for number in answers]
        mask = np.zeros(len(one.ids), int)
        logprobs = np.zeros(len(one.ids), np.float32)
        for span, number in zip(row.spans, answers, strict=True):
            assert one.ids[span.start : span.stop] == asked[number].ids
            mask[span.start : span.stop] = 1
            logprobs[span.start : span.stop] = asked[number].logprobs
        assert row.agent_token_mask.tolist() == (mask * (not rollout.failed)).tolist()
        assert (row.logprobs * mask).tolist() == logprobs.tolist()
        answered = one.answers == answers
        assert not answered or row.logprobs.tolist() == logprobs.tolist()
    carried = sum(len(one.ids) for one in asked[: len(keys)])
    assert rollout.agent_tokens == sum(row.agent_token_mask.sum() for row in rollout.rows)
    assert rollout.agent_tokens == (0 if rollout.failed else carried)


def _check_tape(rollout, asked):
    """The requests tile the tape, each with its answer at its end."""
    stops = [0]
    for (start, acts, stop), one in zip(rollout.at.tolist(), asked, strict=True):
        assert start == stops[-1] <= acts
        assert rollout.token_ids[acts:stop].tolist() == (one.ids or [])
        stops.append(stop)
    assert stops[-1] == len(rollout.token_ids) == len(rollout.logprobs)


def _check_conversations(rollout, asked, keys):
    talks = {
        (episode.index, step.index): pairs(messages[:end])
        for messages, turns in rollout.conversations()
        for episode, step, end in turns
    }
    assert talks == dict(zip(keys, (one.talk for one in asked), strict=False))
    turns = [turn for _, turns in rollout.conversations() for turn in turns]
    assert len(turns) == len(keys)
    steps = [step for episode in rollout.episodes for step in episode.steps]
    said = [(step.action, step.tools) for step in steps]
    assert said == [(one.text, one.tools) for one in asked[: len(keys)]]
