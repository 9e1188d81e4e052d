"""The end of a turn is written once, whoever writes it."""

import pytest

from agentsgym.tokens import codec_for
from agentsgym.types import Answer
from chat_tokenizers import template, tokenizer_for
from helpers import assistant, user
from recorded import Recorded

# Templates, the tokens that end an answer in them, and whether those are special ones.
CLOSINGS = [
    ("gemma3", ["<end_of_turn>"], True),  # not among all_special_ids
    ("gemma3", ["<end_of_turn>"], False),
    ("gemma4_v5", ["<turn|>"], True),
    ("phi3", ["<|end|>"], False),
    ("cohere2", ["<|END_RESPONSE|>", "<|END_OF_TURN_TOKEN|>"], True),
    ("llama3", ["<|eot_id|>"], True),
]


@pytest.mark.parametrize(("name", "closing", "special"), CLOSINGS)
def test_sampled_ends_of_turns_are_not_written_again(name, closing, special):
    tokenizer = tokenizer_for(template(name), special=special)
    ends = tokenizer.convert_tokens_to_ids(closing)
    assert not set(ends) & set(tokenizer.all_special_ids)
    whole = rows_of(tokenizer, [])
    for sampled in range(1, len(ends) + 1):
        assert rows_of(tokenizer, ends[:sampled]) == whole
    if len(ends) > 1:  # it may leave out the first
        (row,) = rows_of(tokenizer, ends[1:])
        assert row.count(ends[1]) == whole[0].count(ends[1])


def rows_of(tokenizer, sampled):
    """The rows of a game whose answer ended with the ids `sampled`."""
    record = Recorded(codec_for(tokenizer))
    record.tree.observe([user("Is it an animal?")])
    ids = (*tokenizer.encode("No.", add_special_tokens=False), *sampled)
    record.act(Answer(assistant("No."), ids, (-1.0,) * len(ids)))
    record.tree.observe([user("More?")])
    return [row.token_ids.tolist() for row in record.rollout().rows]
