"""The words that no data file of this project may contain, and how they are found.

    python scripts/offensive_words.py /path/to/wordnet/dict < words.txt

rewrites `twenty_questions/offensive.txt`: one word a line, as the first 16 hexadecimal digits of
its SHA-256, so that this repository does not spell slurs out. The part `[glosses]` holds the nouns
whose first sense WordNet marks as an ethnic slur, disparaging or obscene; `[by hand]` holds words
that WordNet does not mark. The words on standard input are added to the second part; `< /dev/null`
adds none. The dict folder is the one of `derive_twenty_questions.py`.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).resolve().parent / "twenty_questions" / "offensive.txt"
NOTE = re.compile(
    r"\(ethnic slur\)|\((?:\w+ )*offensive(?: \w+)*\)|(?:vulgar|pejorative) (?:slang|terms?)"
    r"|(?:offensive|disparaging|derogatory|insulting|obscene) (?:terms?|names?|words?)"
)
MARKS = frozenset({"ethnic_slur", "disparagement", "obscenity"})
# Words that the notes catch although they are harmless, or have a common harmless sense. (A cock is
# another name of a secret.)
HARMLESS = """apparatchik bowdleriser bowdlerizer cock colored dike effeminacy effeminateness
expurgator indian jerry mickey mongrel moonie oriental paddy peeing peewee placeman placeseeker pom
pouf puss ragtag riffraff runt shrimp sissiness taco throwaway tom unmanliness womanishness"""


def digest(word: str) -> str:
    """How the list writes a word."""
    return hashlib.sha256(word.encode()).hexdigest()[:16]


def listed() -> frozenset[str]:
    """The digests of all words in the list."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and line[0] not in "#[")


def offensive_in(text: str, digests: frozenset[str]) -> list[str]:
    """The words of `text` that are in the list, also as a plural or a part of a compound."""
    words = re.findall(r"[a-z]{3,}", text.lower())
    return [word for word in words if any(digest(form) in digests for form in _singulars(word))]


def _singulars(word: str) -> set[str]:
    return {word, word.removesuffix("s"), re.sub(r"(?<=[sxzh])es$", "", word)}


def noted(folder: Path) -> set[str]:
    """The nouns whose first sense WordNet marks as offensive."""
    senses = {}
    for part, _ in _entries(folder / "index.noun"):
        senses[part[0]] = int(part[-int(part[2])])
    marked = _marked(folder / "data.noun")
    words = {word for word, sense in senses.items() if word in marked.get(sense, ())}
    return {word for word in words if re.fullmatch("[a-z]{3,}", word)} - {*HARMLESS.split()}


def _marked(path: Path) -> dict[int, set[str]]:
    """The marked words of each synset, by its offset.

    A gloss marks all words of its synset. A usage pointer (`;u`) names one of them by its number
    from 1, or all of them with 0.
    """
    synsets = {int(part[0]): (part, gloss) for part, gloss in _entries(path)}
    members = {offset: _members(part) for offset, (part, _) in synsets.items()}
    marked: dict[int, set[str]] = {}
    for offset, (part, gloss) in synsets.items():
        words = members[offset]
        marked[offset] = set(words) if NOTE.search(gloss.split('"')[0]) else set()
        for i in range(5 + 2 * len(words), len(part) - 3):
            if part[i] == ";u" and part[i + 2] == "n" and members[int(part[i + 1])][0] in MARKS:
                number = int(part[i + 3][:2], 16)
                marked[offset].update(words[number - 1 : number] if number else words)
    return marked


def _entries(path: Path) -> Iterator[tuple[list[str], str]]:
    """The fields of each line and its gloss; the license at the top is left out."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line[0] != " ":
            head, _, gloss = line.partition(" | ")
            yield head.split(), gloss


def _members(part: list[str]) -> list[str]:
    return [word.lower() for word in part[4 : 4 + 2 * int(part[3], 16) : 2]]


def main() -> None:
    glosses = {digest(word) for word in noted(Path(sys.argv[1]))}
    old = LIST.read_text(encoding="utf-8") if LIST.exists() else ""
    hand = {*old.partition("[by hand]\n")[2].split(), *map(digest, sys.stdin.read().split())}
    parts = ["# Written by scripts/offensive_words.py, which says what this is.", "[glosses]"]
    parts += [*sorted(glosses), "[by hand]", *sorted(hand - glosses)]
    LIST.write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(f"{LIST.name}: {len(glosses)} words from glosses, {len(hand - glosses)} by hand")


if __name__ == "__main__":
    main()
