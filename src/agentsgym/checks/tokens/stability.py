"""Whether the text of sampled tokens encodes to the same tokens again."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentsgym.types import Tokenizer

TEXTS = (
    "Is it an animal?",
    "I don't know. [apple]",
    "  two spaces, 3.14 + 2 = 5.14 ",
    "a line\n\nand another\n",
    "Ein Vögelchen – “naïve” 日本 🙂",
    "x = f(y) if y > 0 else None  # why not",
)
_CUTS = 10


@dataclass(frozen=True, slots=True)
class Stability:
    """`changed` has the sample texts that are another text after encoding and decoding. `kept` is
    the share of samples, texts in other tokens than the tokenizer's own, that encode to the sampled
    tokens again."""

    changed: tuple[str, ...]
    kept: float


def stability(tokenizer: Tokenizer, texts: Sequence[str] = TEXTS) -> Stability:
    """Encode and decode sample texts, whole and cut into pieces at random places (always the same
    ones): a model may sample a text in any tokens that spell it."""
    rng = random.Random(0)
    samples = [_sampled(tokenizer, text, rng) for text in texts for _ in range(_CUTS)]
    kept = [_encode(tokenizer, tokenizer.decode(ids)) == ids for ids in samples]
    return Stability(
        tuple(text for text in texts if tokenizer.decode(_encode(tokenizer, text)) != text),
        sum(kept) / max(1, len(kept)),
    )


def _sampled(tokenizer: Tokenizer, text: str, rng: random.Random) -> list[int]:
    cut = rng.randrange(1, len(text))
    return _encode(tokenizer, text[:cut]) + _encode(tokenizer, text[cut:])


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))
