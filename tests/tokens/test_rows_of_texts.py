"""Chat-template deltas and rows."""

from agentsgym.tokens import codec_for
from agentsgym.types import Answer
from helpers import assistant, user
from recorded import Recorded, sampled


def converse(tokenizer, actions, observations):
    record = Recorded(codec_for(tokenizer))
    messages = [user("Is it an animal?")]
    record.tree.observe(messages)
    for step, action in enumerate(actions):
        record.act(action)
        messages.append(action.message)
        if step < len(observations):
            messages.append(user(observations[step]))
            record.tree.observe(messages[-1:])
    return record.rollout(), messages


def test_unusual_tokenisation_is_kept(chat_tokenizer):
    """Ids that no encoder would give for their text stay as they were sampled."""
    letters = tuple(chat_tokenizer.convert_tokens_to_ids(list("No")))
    assert list(letters) != chat_tokenizer.encode("No", add_special_tokens=False)
    action = Answer(assistant("No"), letters, (-1.0, -2.0))
    rollout, _ = converse(chat_tokenizer, [action], ["Yes"])
    (row,) = rollout.rows
    (span,) = row.spans
    assert tuple(row.token_ids[span.start : span.stop]) == letters
    assert row.logprobs[span.start : span.stop].tolist() == [-1.0, -2.0]


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
    record.act(Answer(assistant("b")))
    rollout = record.rollout()
    assert rollout.rows == () and rollout.at.tolist() == [[0, 0, 0]]
    assert rollout.conversations()[0][0] == [user("a"), assistant("b")]
