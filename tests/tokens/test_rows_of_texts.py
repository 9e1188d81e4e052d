"""Chat-template deltas and rows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.tokens import codec_for
from agentsgym.types import GenerationResult
from helpers import assistant, user
from recorded import Recorded, sampled


def converse(tokenizer, actions, observations):
    record = Recorded(codec_for(tokenizer))
    messages = [user("Is it an animal?")]
    record.tree.observe(messages)
    for step, action in enumerate(actions):
        record.act(action, assistant(action.text))
        messages.append(assistant(action.text))
        if step < len(observations):
            messages.append(user(observations[step]))
            record.tree.observe(messages[-1:])
    return record.rollout(), messages


def test_sampled_end_of_turn_is_not_doubled(chat_tokenizer):
    for eos in (True, False):
        action = sampled(chat_tokenizer, "Can it fly?", eos)
        rollout, messages = converse(chat_tokenizer, [action], ["No"])
        (row,) = rollout.rows
        rendered = chat_tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert chat_tokenizer.decode(row.token_ids) == rendered
        assert [span.length for span in row.spans] == [len(action.token_ids)]


def test_unusual_tokenisation_is_kept(chat_tokenizer):
    """Ids that no encoder would give for their text stay as they were sampled."""
    letters = tuple(chat_tokenizer.convert_tokens_to_ids(list("No")))
    assert list(letters) != chat_tokenizer.encode("No", add_special_tokens=False)
    action = GenerationResult("", letters, (-1.0, -2.0), "No")
    rollout, _ = converse(chat_tokenizer, [action], ["Yes"])
    (row,) = rollout.rows
    (span,) = row.spans
    assert tuple(row.token_ids[span.start : span.stop]) == letters
    assert row.logprobs[span.start : span.stop].tolist() == [-1.0, -2.0]


def test_a_template_that_drops_thoughts_begins_a_row(thinking_tokenizer):
    thought = sampled(thinking_tokenizer, "<think>fly</think>Can it fly?")
    plain = sampled(thinking_tokenizer, "Is it an animal?")
    rollout, _ = converse(thinking_tokenizer, [plain, thought, plain], ["No", "Yes"])
    assert [row.begins for row in rollout.rows] == ["episode", "template"]
    assert [[s.step for s in row.spans] for row in rollout.rows] == [[0, 1], [2]]
    assert "<think>" not in thinking_tokenizer.decode(rollout.rows[1].token_ids)
    assert [s.length for s in rollout.rows[1].spans] == [len(plain.token_ids)]


def test_white_space_that_a_template_trims_is_no_rewrite(chat_tokenizer):
    trimming = chat_tokenizer.chat_template.replace("m['content']", "m['content'] | trim")
    action = sampled(chat_tokenizer, " No \n")
    original = chat_tokenizer.chat_template
    try:
        chat_tokenizer.chat_template = trimming
        rollout, _ = converse(chat_tokenizer, [action], ["Yes"])
    finally:
        chat_tokenizer.chat_template = original
    assert [row.begins for row in rollout.rows] == ["episode"]


def test_without_tokenizer_there_are_no_tokens():
    record = Recorded(None)
    record.tree.observe([user("a")])
    record.act(GenerationResult.of_text("b"), assistant("b"))
    rollout = record.rollout()
    assert rollout.rows == () and rollout.at.tolist() == [[0, 0, 0]]
    assert rollout.conversations()[0][0] == [user("a"), assistant("b")]


WORDS = st.text(alphabet="abc ?[]\n<|>é", max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(st.tuples(WORDS, WORDS, st.booleans()), min_size=1, max_size=5),
    template=st.booleans(),
)
def test_tokens_before_a_span_are_what_the_agent_saw(
    turns, template, plain_tokenizer, chat_tokenizer
):
    tokenizer = chat_tokenizer if template else plain_tokenizer
    record = Recorded(codec_for(tokenizer))
    record.tree.observe([user("go")])
    contexts = []
    for answer, observed, end in turns:
        contexts.append(list(record.tree.context))
        record.act(sampled(tokenizer, answer, end), assistant(answer))
        record.tree.observe([user(observed)])
    spans = [(row, span) for row in record.rollout().rows for span in row.spans]
    assert len(spans) == len(turns)
    for context, (row, span) in zip(contexts, spans, strict=True):
        assert row.token_ids[: span.start].tolist() == context
        assert len(row.token_ids) == len(row.logprobs)
