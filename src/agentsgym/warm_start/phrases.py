"""Fixed phrases of a game: what stands between the words that differ from game to game.

With a token for each a game is up to six times shorter than in words, and what differs stands next
to what it is about, so that a tiny model learns sooner where to look and what to copy.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

WORDS = r"-\w+| ?\w+| ?[^\w\s]|\s"
"""A hyphen with the letters after it, a word or a sign with the space before it, white space."""
CERTAIN, LEAST, MOST = 0.9, 10, 64
"""The share of cases in which two words have the same neighbor, for it to be told from them; how
often they have to stand there; and the number of phrases, those that save most tokens."""
SURPRISING = 0.3
"""A word of which this share can't be told from what stands beside it is in no phrase."""
_DIFFERS = "\0"


def fixed_phrases(texts: Iterable[str]) -> list[str]:
    """The fixed phrases of these texts, each of two words or signs and more, the longest first.

    A word can be told if nearly always it alone follows the two before it, or comes before the two
    after it. Words of which many can't be told differ from game to game, and are in no phrase. A
    phrase goes on from a word to the next if one can be told from the side of the other.
    """
    lines = [re.findall(WORDS, text) for text in texts]
    beside = _Beside(lines)
    seen, surprising = Counter[str](), Counter[str]()
    for line in lines:
        seen.update(line)
        surprising.update(line[k] for k in range(len(line)) if not beside.tells(line, k))
    fixed = {word for word, count in seen.items() if surprising[word] <= SURPRISING * count}
    lines = [[word if word in fixed else _DIFFERS for word in line] for line in lines]
    beside = _Beside(lines)
    counts = Counter(phrase for line in lines for phrase in _runs(line, beside))
    longer = [one for one in counts if len(one) > 1]
    longer.sort(key=lambda one: (-counts[one] * (len(one) - 1), one))
    return sorted(("".join(one) for one in longer[:MOST]), key=lambda text: (-len(text), text))


def pieces_pattern(phrases: Iterable[str] = ()) -> str:
    """A regular expression whose matches, from left to right, are these phrases, where no word goes
    on after them, and else words and signs."""
    return "|".join([*map(_alone, phrases), WORDS])


def _alone(phrase: str) -> str:
    return re.escape(phrase) + (r"(?!\w)" if re.match(r"\w", phrase[-1]) else "")


class _Beside:
    """Which words stand beside two others, and how often."""

    def __init__(self, lines: Iterable[Sequence[str]]) -> None:
        self._after, self._before = Counter[Sequence[str]](), Counter[Sequence[str]]()
        for line in lines:
            for a, b, c, d, e in _windows(line):
                self._after.update([(a, b), (a, b, c)])
                self._before.update([(d, e), (c, d, e)])

    def tells(self, line: Sequence[str], k: int) -> bool:
        """Whether word k can be told from those before it or from those after it."""
        return self._follows(line, k) or self._precedes(line, k)

    def joins(self, line: Sequence[str], k: int) -> bool:
        """Whether word k, or the one before it, can be told from the side of the other."""
        return self._follows(line, k) or self._precedes(line, k - 1)

    def _follows(self, line: Sequence[str], k: int) -> bool:
        """Whether word k can be told from the two before it."""
        a, b, c = ["", "", *line][k : k + 3]
        return self._after[a, b] >= LEAST and self._after[a, b, c] >= CERTAIN * self._after[a, b]

    def _precedes(self, line: Sequence[str], k: int) -> bool:
        """Whether word k can be told from the two after it."""
        c, d, e = [*line, "", ""][k : k + 3]
        return self._before[d, e] >= LEAST and self._before[c, d, e] >= CERTAIN * self._before[d, e]


def _windows(line: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each word with the two before and the two after it."""
    padded = ["", "", *line, "", ""]
    return zip(*(padded[k:] for k in range(5)), strict=False)


def _runs(line: Sequence[str], beside: _Beside) -> Iterator[tuple[str, ...]]:
    """The longest runs of fixed words of which each can be told from the side of the next."""
    run: list[str] = []
    for k, word in enumerate(line):
        if run and (word == _DIFFERS or not beside.joins(line, k)):
            yield tuple(run)
            run = []
        if word != _DIFFERS:
            run.append(word)
    if run:
        yield tuple(run)
