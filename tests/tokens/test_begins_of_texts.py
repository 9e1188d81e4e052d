"""A row begins as the tokenizer begins texts: once, first, as context."""

import pytest
from tokenizers import processors

from agentsgym.tokens import codec_for
from agentsgym.types import Answer
from helpers import CHATML, assistant, build_tokenizer, user
from recorded import Recorded

BOS, END = 1, 2  # <|im_start|> and <|im_end|> of the toy tokenizer


def beginning(template=None, kind="template"):
    """A tokenizer that puts <|im_start|> before each text, as Llama's does, or as BERT's do, that
    also closes it."""
    tokenizer = build_tokenizer(template)
    pair = "<|im_start|> $A" if kind == "template" else "<|im_start|> $A <|im_end|>"
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=pair, special_tokens=[("<|im_start|>", BOS), ("<|im_end|>", END)]
    )
    assert tokenizer.encode("Q1")[0] == BOS
    return tokenizer


@pytest.mark.parametrize("kind", ["template", "both sides"])
def test_without_a_template_a_row_begins_as_texts_do_and_no_later_text_does(kind):
    tokenizer = beginning(kind=kind)
    record = Recorded(codec_for(tokenizer))
    record.tree.observe([user("Q1")])
    context = list(record.tree.context)
    assert context == [BOS, *tokenizer.encode("Q1", add_special_tokens=False)]
    for _ in range(2):
        record.act(Answer(assistant("no")))
        record.tree.observe([user("Q2")])
    (row,) = record.rollout().rows
    assert row.token_ids.tolist().count(BOS) == 1 and END not in row.token_ids


def test_a_text_that_is_meant_to_begin_so_gets_no_second_one():
    codec = codec_for(beginning(), special_tokens_meant=True)
    assert codec.open([user("<|im_start|>Q1")]).token_ids.count(BOS) == 1


def test_a_template_that_writes_it_has_one_and_one_that_does_not_has_none():
    """As transformers renders and encodes it."""
    for template, count in (("{{ '<|im_start|>' }}" + "{{ messages[0].content }}", 1), (CHATML, 2)):
        tokenizer = beginning(template)
        whole = tokenizer.apply_chat_template(
            [user("Q1")], add_generation_prompt=True, return_dict=False
        )
        ids = codec_for(tokenizer).open([user("Q1")]).token_ids
        assert list(ids) == whole and ids.count(BOS) == count
