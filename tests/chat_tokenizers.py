"""Tokenizers for chat templates as models bring them, built in process."""

import functools
import re
from pathlib import Path

import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
# Those that models come with; TRL's variants for training mostly mark the assistant's text alone.
ALL = [name for name in NAMES if not name.endswith("_training")]
# What stands between roles and contents in templates: <|im_end|>, <turn|>, [INST], <｜User｜>, ...
_TOKEN = re.compile(r"<[|｜]?/?\w[\w▁]*[|｜]?>|\[/?[A-Z_]+\]")
_NO_TOKENS = frozenset({"<parameter>", "</parameter>", "[TOOL]"})
# Added tokens that structure an answer; models bring them without the special flag.
THOUGHTS = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"})


def template(name: str) -> str:
    """One of TRL's bundled chat templates."""
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


def tokens_of(text: str) -> list[str]:
    """The control tokens that a template spells."""
    return sorted(set(_TOKEN.findall(text)) - _NO_TOKENS)


@functools.lru_cache(maxsize=256)
def tokenizer_for(
    text: str, eos: str | None = None, special: bool = True, metaspace: bool = False
) -> PreTrainedTokenizerFast:
    """One token per byte and one per control token of the template.

    With `special=False` the control tokens are added ones without the flag, as in Phi-3. With
    `metaspace` a text begins with a space of its own, as in Llama 2.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [f"<0x{byte:02X}>" for byte in range(256)] if metaspace else alphabet
    letters = ["▁", *map(chr, range(33, 127))] if metaspace else []
    vocabulary = {piece: number for number, piece in enumerate(["<pad>", *pieces, *letters])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=metaspace))
    if metaspace:
        core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        core.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    else:
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        core.decoder = decoders.ByteLevel()
    tokens = sorted({*tokens_of(text), "<bos>", *([eos] if eos else [])})
    core.add_tokens(
        [
            AddedToken(token, special=special and token not in THOUGHTS, normalized=False)
            for token in tokens
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token=eos or "<pad>",
        chat_template=text,
        clean_up_tokenization_spaces=False,
    )
