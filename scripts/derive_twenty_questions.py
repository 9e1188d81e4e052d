"""Builds the Twenty Questions tables from the hand-written sources beside it and WordNet 3.0.

    python scripts/derive_twenty_questions.py /path/to/wordnet/dict

The dict folder is the one with `data.noun` and `index.noun` (Debian: `wordnet-base`, under
`/usr/share/wordnet`). Sources in `scripts/twenty_questions/`: `attributes.txt` (questions and their
wordings), `kinds.txt` (attributes inherited from a kind), `secrets.txt` and `hardcore.txt` (secrets
by kind, with sizes and synonyms), `columns.txt` (exceptions, one attribute a line), `senses.tsv`
(the pinned WordNet sense of every secret), `quickstart.txt`. Words in `offensive.txt` are left out
of the hierarchy (see `offensive_words.py`). `--suggest` prints senses to pin.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from offensive_words import listed, offensive_in

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "twenty_questions"
OUTPUT = HERE.parent / "src/agentsgym/envs/twenty_questions/data"


@dataclass
class Secret:
    name: str
    size: float | None
    synonyms: list[str]
    kinds: list[str]
    overrides: list[str]
    values: dict[str, int] = field(default_factory=dict)


def lines(name: str) -> list[str]:
    text = (SOURCES / name).read_text()
    return [line.rstrip() for line in text.splitlines() if line.strip() and line[0] != "#"]


def read_attributes() -> tuple[list[dict[str, str]], dict[str, list[str]]]:
    attributes: list[dict[str, str]] = []
    wordings: dict[str, list[str]] = {}
    for line in lines("attributes.txt"):
        if line[0] != " ":
            key, question, phrase = (part.strip() for part in line.split("|"))
            attributes.append({"key": key, "question": question, "phrase": phrase})
            wordings[key] = []
        else:
            form, _, phrases = line.strip().partition(":")
            key = attributes[-1]["key"]
            wordings[key] += [f"{form}:{p.strip()}" for p in phrases.split(";") if p.strip()]
    return attributes, wordings


def read_kinds() -> dict[str, tuple[list[str], list[str]]]:
    kinds = {}
    for line in lines("kinds.txt"):
        head, _, attributes = line.partition("|")
        name, _, parents = head.partition(":")
        kinds[name.strip()] = (parents.split(), attributes.split())
    return kinds


SECRET = re.compile(r"^([a-z][a-z0-9 .'-]*?) ([0-9.]+|\?)(?: =([^+?]*?))?((?: [+?-].*)?)$")


def read_secrets(name: str) -> list[Secret]:
    secrets, kinds = [], [""]
    for line in lines(name):
        if line[0] == "[":
            kinds = line.strip("[]").split()
            continue
        match = SECRET.match(line)
        if match is None:
            raise SystemExit(f"{name}: cannot read {line!r}")
        title, size, synonyms, overrides = match.groups()
        secrets.append(
            Secret(
                title,
                None if size == "?" else float(size),
                [s.strip() for s in (synonyms or "").split(",") if s.strip()],
                list(kinds),
                overrides.split(),
            )
        )
    return secrets


def all_kinds(names: list[str], kinds: dict[str, tuple[list[str], list[str]]]) -> list[str]:
    """The kinds with their ancestors, ancestors first."""
    order: list[str] = []
    for name in names:
        for kind in [*all_kinds(kinds[name][0], kinds), name]:
            if kind not in order:
                order.append(kind)
    return order


def apply_marks(values: dict[str, int], marks: list[str], keys: set[str]) -> None:
    """`key` or `+key` = yes, `-key` = no, `?key` or `key?` = unknown; a bare word after + too."""
    for mark in marks:
        key = mark.strip("+-?")
        if key not in keys:
            raise SystemExit(f"unknown attribute {mark!r}")
        values[key] = 0 if mark[0] == "-" else -1 if "?" in mark else 1


def size_values(secret: Secret, kinds: list[str]) -> dict[str, int]:
    """Attributes that follow from the size; the columns can still overrule them."""
    if secret.size is None:
        return dict.fromkeys(
            ("bigger_than_person", "bigger_than_breadbox", "bigger_than_car", "heavy"), -1
        )
    size = secret.size
    is_object = "person" not in kinds and "place" not in kinds
    tame = "animal" not in kinds or size <= 15
    return {
        "bigger_than_person": int(size > 187),
        "bigger_than_breadbox": int(size > 38),
        "bigger_than_car": int(size > 440),
        "handheld": int(size <= 30 and is_object and tame),
        "pocket_sized": int(size <= 9.5 and is_object),
        "heavy": int(size >= 85 and "person" not in kinds),
        "portable": int(size <= 60 and is_object),
    }


IMPLIES = """mammal>animal bird>animal fish>animal insect>animal reptile>animal sea_animal>animal
fruit>food vegetable>food dessert>food worn_head>worn worn_feet>worn worn_hands>worn worn_neck>worn
worn_legs>worn electronic>electric has_engine>machine predator>animal herbivore>animal
pocket_sized>handheld two_wheels>has_wheels four_wheels>has_wheels in_kitchen>found_indoors
in_bathroom>found_indoors in_bedroom>found_indoors room>place landform>place building>structure
job>person eight_legs>many_legs bigger_than_car>bigger_than_person"""


def derive(values: dict[str, int]) -> None:
    """Attributes that follow from others."""
    kept = {values["pet"], values["farm_animal"]}
    animal = values["animal"] == 1
    values["domestic_animal"] = 0 if not animal else 1 if 1 in kept else -1 if -1 in kept else 0
    on_land = {1: 0, 0: 1, -1: -1}[values["sea_animal"]]
    values["land_animal"] = on_land if animal else values["person"]


def fill(
    secrets: list[Secret], keys: list[str], kinds: dict[str, tuple[list[str], list[str]]]
) -> None:
    keyset = set(keys)
    by_kind: dict[str, list[Secret]] = defaultdict(list)
    for secret in secrets:
        chain = all_kinds(secret.kinds, kinds)
        for kind in chain:
            by_kind[kind].append(secret)
        secret.values = {**dict.fromkeys(keys, 0), **size_values(secret, chain)}
        for kind in chain:
            marks = [m for m in kinds[kind][1] if m not in ("handheld", "pocket_sized", "portable")]
            apply_marks(secret.values, marks, keyset)
        apply_marks(secret.values, secret.overrides, keyset)
    names = {secret.name: secret for secret in secrets}
    for line in lines("columns.txt"):
        key, _, cells = line.partition(":")
        if key not in keyset:
            raise SystemExit(f"columns.txt: unknown attribute {key!r}")
        for cell in filter(None, (c.strip() for c in cells.split(","))):
            value = {"-": 0, "?": -1}.get(cell[0], 1)
            target = cell.lstrip("-?")
            if target[0] != "@" and target not in names:
                raise SystemExit(f"columns.txt: {key}: unknown secret {target!r}")
            for secret in by_kind[target[1:]] if target[0] == "@" else [names[target]]:
                secret.values[key] = value
    for secret in secrets:
        derive(secret.values)
    for pair in IMPLIES.split():
        cause, effect = pair.split(">")
        for secret in secrets:
            if secret.values[cause] == 1:
                secret.values[effect] = 1


# ---- WordNet ---------------------------------------------------------------------------------


@dataclass
class WordNet:
    senses: dict[str, list[int]]
    tags: dict[str, int]
    words: dict[int, list[str]]
    parents: dict[int, list[int]]
    gloss: dict[int, str]

    @classmethod
    def read(cls, folder: Path) -> WordNet:
        senses, tags, words, parents, gloss = {}, {}, {}, {}, {}
        for line in (folder / "index.noun").read_text().splitlines():
            if line[0] == " ":
                continue
            part = line.split()
            count = int(part[2])
            senses[part[0]] = [int(x) for x in part[-count:]]
            tags[part[0]] = int(part[-count - 1])
        for line in (folder / "data.noun").read_text().splitlines():
            if line[0] == " ":
                continue
            head, _, text = line.partition(" | ")
            part = head.split()
            offset, n_words = int(part[0]), int(part[3], 16)
            words[offset] = [w.lower().replace("_", " ") for w in part[4 : 4 + 2 * n_words : 2]]
            start = 5 + 2 * n_words
            links = [part[i : i + 4] for i in range(start, len(part) - 3, 4)]
            parents[offset] = [int(x[1]) for x in links if x[0] in ("@", "@i") and x[2] == "n"]
            gloss[offset] = text.split(";")[0].strip()
        return cls(senses, tags, words, parents, gloss)

    def closure(self, offset: int) -> set[int]:
        members, todo = {offset}, [offset]
        while todo:
            for parent in self.parents[todo.pop()]:
                if parent not in members:
                    members.add(parent)
                    todo.append(parent)
        return members


def suggest(wordnet: WordNet, secrets: list[Secret]) -> None:
    pinned = {line.split("\t")[0] for line in lines("senses.tsv")}
    for secret in secrets:
        if secret.name in pinned:
            continue
        for lemma in (secret.name.replace(" ", "_"), *secret.synonyms, secret.name.split()[-1]):
            senses = wordnet.senses.get(lemma.replace(" ", "_"))
            if senses:
                print(f"{secret.name}\t{lemma}.n.1\t{wordnet.gloss[senses[0]][:70]}")
                break
        else:
            print(f"{secret.name}\t-\t")


def pinned_senses(wordnet: WordNet) -> dict[str, int | None]:
    pins: dict[str, int | None] = {}
    for line in lines("senses.tsv"):
        name, sense = line.split("\t")[:2]
        if sense == "-":
            pins[name] = None
            continue
        lemma, _, number = sense.rpartition(".n.")
        pins[name] = wordnet.senses[lemma][int(number) - 1]
    return pins


ABSTRACT = {"entity", "physical entity", "abstraction", "abstract entity", "whole", "unit", "part"}


def offensive(wordnet: WordNet) -> set[str]:
    digests = listed()
    lemmas = (lemma.replace("_", " ") for lemma in wordnet.senses)
    return {lemma for lemma in lemmas if offensive_in(lemma, digests)}


def taxonomy(wordnet: WordNet, pins: dict[str, int | None]) -> dict[str, Any]:
    """Compact is-a graph: node numbers, lemma names per node, parents; and other common nouns.

    `nouns` lists common concrete nouns outside the graph (a secret is none of them), each with the
    secrets that are more general than it (for those the answer is unknown). Offensive words are
    left out: a question about one is answered with "I don't know".
    """
    refused = ABSTRACT | offensive(wordnet)
    offsets = {o for o in pins.values() if o is not None}
    nodes = sorted({n for o in offsets for n in wordnet.closure(o)})
    number = {offset: i for i, offset in enumerate(nodes)}
    concrete = wordnet.senses["physical_entity"][0]
    inside = {w for n in nodes for w in wordnet.words[n]}
    specific: dict[str, list[str]] = {}
    for lemma, senses in wordnet.senses.items():
        word = lemma.replace("_", " ")
        if wordnet.tags[lemma] < 1 or word in inside | refused:
            continue
        if not re.fullmatch("[a-z]{3,}", word):
            continue
        ancestors = wordnet.closure(senses[0])
        if concrete in ancestors:
            specific[word] = sorted(name for name, offset in pins.items() if offset in ancestors)
    return {
        "words": ["|".join(w for w in wordnet.words[n] if w not in refused) for n in nodes],
        "parents": [[number[p] for p in wordnet.parents[n]] for n in nodes],
        "secrets": {name: -1 if o is None else number[o] for name, o in pins.items()},
        "nouns": " ".join(sorted(w for w, below in specific.items() if not below)),
        "narrower": {w: below for w, below in sorted(specific.items()) if below},
    }


# ---- output ----------------------------------------------------------------------------------


def pack(row: list[int]) -> str:
    """Two bits per value (yes, unknown), as base64."""
    values = np.asarray(row, dtype=np.int8)
    bits = np.concatenate([values == 1, values == -1])
    return base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")


def table(secrets: list[Secret], keys: list[str]) -> dict[str, Any]:
    return {
        "attributes": keys,
        "secrets": {
            s.name: {
                "size": s.size,
                **({"synonyms": s.synonyms} if s.synonyms else {}),
                "values": pack([s.values[k] for k in keys]),
            }
            for s in secrets
        },
    }


def write(name: str, value: Any) -> None:
    path = OUTPUT / name
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    path.write_text(text.replace('},"', '},\n"').replace('],"', '],\n"') + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wordnet", type=Path, help="folder with data.noun and index.noun")
    parser.add_argument("--suggest", action="store_true", help="print senses to pin and stop")
    arguments = parser.parse_args()
    wordnet = WordNet.read(arguments.wordnet)
    default, hardcore = read_secrets("secrets.txt"), read_secrets("hardcore.txt")
    everything = default + hardcore
    names = [s.name for s in everything]
    if len(set(names)) != len(names):
        raise SystemExit(f"twice: {sorted({n for n in names if names.count(n) > 1})}")
    if arguments.suggest:
        suggest(wordnet, everything)
        return
    attributes, wordings = read_attributes()
    keys = [a["key"] for a in attributes]
    fill(everything, keys, read_kinds())
    OUTPUT.mkdir(parents=True, exist_ok=True)
    write("attributes.json", [{**a, "wordings": wordings[a["key"]]} for a in attributes])
    write("default.json", table(default, keys))
    write("hardcore.json", table(hardcore, keys))
    sizes = dict(line.rsplit(" ", 1) for line in lines("references.txt"))
    write("references.json", {name: float(size) for name, size in sizes.items()})
    pins = pinned_senses(wordnet)
    write("wordnet.json", taxonomy(wordnet, {n: pins[n] for n in names}))
    parts = {name: rest for name, _, rest in (x.partition(":") for x in lines("quickstart.txt"))}
    quick = {name: [x.strip() for x in rest.split(",")] for name, rest in parts.items()}
    chosen = [next(s for s in default if s.name == name) for name in quick["secrets"]]
    for secret in chosen:  # what is unknown is set to the typical case
        yes = {key for name, key in (p.rsplit(" ", 1) for p in quick["yes"]) if name == secret.name}
        known = {key: max(0, value) for key, value in secret.values.items()}
        secret.values = known | dict.fromkeys(yes, 1)
    write("quickstart.json", table(chosen, quick["attributes"]))


if __name__ == "__main__":
    main()
