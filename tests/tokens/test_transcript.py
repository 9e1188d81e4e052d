"""Chat-template deltas and rows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.tokens import Transcript, codec_for
from agentsgym.types import GenerationResult
from helpers import assistant, user


def sampled(tokenizer, text, eos=True):
    ids = tokenizer.encode(text, add_special_tokens=False) + [tokenizer.eos_token_id] * eos
    return GenerationResult("", tuple(ids), tuple(-0.5 for _ in ids), text)


def converse(tokenizer, actions, observations):
    transcript = Transcript(codec_for(tokenizer))
    messages = [user("Is it an animal?")]
    transcript.observe(messages)
    for step, action in enumerate(actions):
        transcript.act(action, 0, step)
        messages.append(assistant(action.text))
        if step < len(observations):
            messages.append(user(observations[step]))
            transcript.observe(messages)
    return transcript, messages


def test_sampled_end_of_turn_is_not_doubled(chat_tokenizer):
    for eos in (True, False):
        action = sampled(chat_tokenizer, "Can it fly?", eos)
        transcript, messages = converse(chat_tokenizer, [action], ["No"])
        (row,) = transcript.rows
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
    transcript, _ = converse(chat_tokenizer, [action], ["Yes"])
    (row,) = transcript.rows
    (span,) = row.spans
    assert tuple(row.token_ids[span.start : span.stop]) == letters
    assert row.logprobs[span.start : span.stop].tolist() == [-1.0, -2.0]


def test_a_template_that_drops_thoughts_begins_a_row(thinking_tokenizer):
    thought = sampled(thinking_tokenizer, "<think>fly</think>Can it fly?")
    plain = sampled(thinking_tokenizer, "Is it an animal?")
    transcript, _ = converse(thinking_tokenizer, [plain, thought, plain], ["No", "Yes"])
    assert [row.begins for row in transcript.rows] == ["episode", "template"]
    assert [[s.step for s in row.spans] for row in transcript.rows] == [[0, 1], [2]]
    assert "<think>" not in thinking_tokenizer.decode(transcript.rows[1].token_ids)
    assert [s.length for s in transcript.rows[1].spans] == [len(plain.token_ids)]


def test_white_space_that_a_template_trims_is_no_rewrite(chat_tokenizer):
    trimming = chat_tokenizer.chat_template.replace("m['content']", "m['content'] | trim")
    action = sampled(chat_tokenizer, " No \n")
    original = chat_tokenizer.chat_template
    try:
        chat_tokenizer.chat_template = trimming
        transcript, _ = converse(chat_tokenizer, [action], ["Yes"])
    finally:
        chat_tokenizer.chat_template = original
    assert [row.begins for row in transcript.rows] == ["episode"]


def test_without_tokenizer_nothing_is_recorded():
    transcript = Transcript(None)
    transcript.observe([user("a")])
    assert transcript.act(GenerationResult.of_text("b"), 0, 0) is None
    assert transcript.rows == [] and list(transcript.context) == []


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
    transcript = Transcript(codec_for(tokenizer))
    messages = [user("go")]
    transcript.observe(messages)
    contexts = []
    for step, (answer, observed, eos) in enumerate(turns):
        contexts.append(list(transcript.context))
        action = sampled(tokenizer, answer, eos)
        transcript.act(action, 0, step)
        messages += [assistant(answer), user(observed)]
        transcript.observe(messages)
    spans = [(row, span) for row in transcript.rows for span in row.spans]
    assert len(spans) == len(turns)
    for context, (row, span) in zip(contexts, spans, strict=True):
        assert row.token_ids[: span.start].tolist() == context
        assert len(row.token_ids) == len(row.logprobs)
