"""Chat templates of every habit, with contents that try to forge turns."""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from agentsgym.tokens import codec_for
from agentsgym.types import Answer, Message, Rollout
from fuzz.oracle import Area, refused_with
from fuzz.values import TEXTS
from helpers import build_tokenizer
from recorded import Recorded

OPENINGS = ["", "<|im_start|>system\nBe brief.<|im_end|>\n", "{{ bos_token or '' }}"]
HEADS = ["<|im_start|>{{ m['role'] }}\n", "[{{ m.role }}] ", "{{ m['role'] | upper }}: "]
CONTENTS = [
    "{{ m['content'] }}",
    "{{ m['content'] | trim }}",
    "{{ m.content.split('</think>')[-1] }}",
    "{% if loop.last %}{{ m.content }}{% else %}{{ m.content.split('</think>')[-1] }}{% endif %}",
    "{% if m.role == 'assistant' and not loop.last %}...{% else %}{{ m.content }}{% endif %}",
    "{{ m['content'] | tojson }}",
    "{{ messages[0]['content'] }}: {{ m['content'] }}",
    "{% for part in m.content %}{% if part is mapping %}{{ part.text }}{% endif %}{% endfor %}",
    "",
]
TAILS = ["<|im_end|>\n", "<|im_end|>", "\n", "", "<|im_end|><pad>\n"]
ENDS = [
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% if add_generation_prompt %}assistant: {% endif %}",
    "",
]
WHOLE = [
    "{{ raise_exception('no') }}",
    "{{ 'a' * 10 ** 8 }}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{{ messages.__class__.__mro__ }}",
    "{% for a in messages %}{% for b in messages %}{{ b.content }}{% endfor %}{% endfor %}",
    "{{ messages",
    "{{ undefined.attribute }}",
]


@dataclass(frozen=True)
class TemplateCase:
    """A template, and texts that are said in turn: observation, action, observation, …"""

    template: str
    texts: list[str]
    sampled: bool


def _joined(parts: tuple[str, ...]) -> str:
    opening, head, content, tail, end = parts
    return f"{opening}{{% for m in messages %}}{head}{content}{tail}{{% endfor %}}{end}"


TEMPLATES = st.one_of(
    st.tuples(*map(st.sampled_from, (OPENINGS, HEADS, CONTENTS, TAILS, ENDS))).map(_joined),
    st.sampled_from(WHOLE),
)
# Halves of surrogate pairs are mended where a text enters a session.
WHOLE_TEXTS = TEXTS.map(lambda text: text.encode("utf-8", "replace").decode())
CASES = st.builds(
    TemplateCase, TEMPLATES, st.lists(WHOLE_TEXTS, min_size=1, max_size=6), st.booleans()
)


def check(case: TemplateCase) -> bool:
    """Every span's ids are what was sampled, after exactly the context that was read; what is said
    holds no control token."""
    tokenizer = build_tokenizer(case.template)
    try:
        codec = codec_for(tokenizer)
        record = Recorded(codec)
        contexts, actions = _play(record, tokenizer, case)
    except ValueError as error:
        return refused_with(error)
    rollout = record.rollout()
    spans = [(row, span) for row in rollout.rows for span in row.spans]
    if not len(rollout.token_ids):
        return not spans  # nothing was said
    assert len(spans) == len(actions)
    for (row, span), context, ids in zip(spans, contexts, actions, strict=True):
        assert row.token_ids[: span.start].tolist() == context
        assert row.token_ids[span.start : span.stop].tolist() == ids
    _no_forged_turns(tokenizer, rollout, case)
    return True


def _play(record: Recorded, tokenizer: Any, case: TemplateCase) -> tuple[list[Any], list[Any]]:
    contexts, actions = [], []
    for number, text in enumerate(case.texts):
        if number % 2 == 0:
            record.tree.observe([Message("user", text)])
            continue
        contexts.append(list(record.tree.context))
        answer = Answer(Message("assistant", text))
        if case.sampled:
            ids = (*tokenizer.encode("abc"), tokenizer.eos_token_id)
            answer = replace(answer, token_ids=ids, logprobs=(-1.0,) * len(ids))
        actions.append(list(record.tree.ids_of(answer)))
        record.act(answer)
    return contexts, actions


def _no_forged_turns(tokenizer: Any, rollout: Rollout, case: TemplateCase) -> None:
    """Contents with control tokens give as many of them as contents without."""
    harmless = build_tokenizer(case.template)
    texts = [text.replace("<|", "<").replace("<pad>", "pad") for text in case.texts]
    if any(mark in text for mark in ("think>", "<") for text in texts):
        return  # a template may cut there, and then shows more or less of the rest
    twin = Recorded(codec_for(harmless))
    _play(twin, harmless, TemplateCase(case.template, texts, case.sampled))
    assert _controls(rollout) == _controls(twin.rollout())


def _controls(rollout: Rollout) -> int:
    """Control tokens outside the actions: ids 0 to 2 of the toy tokenizer."""
    return sum(
        token < 3 and not any(span.start <= place < span.stop for span in row.spans)
        for row in rollout.rows
        for place, token in enumerate(row.token_ids.tolist())
    )


AREA = Area("chat templates", CASES, check, cost=2.0)
