"""The families of games: what is hidden, what an informing action tells, and what is then right.

Families with the same kind of use differ in structure. Those to train on, to validate on and to
test on are disjoint (`FAMILIES`); `kinds` lists which kinds of use each part has.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import permutations, product

from agentsgym.envs.exploration.best_play import Queries
from agentsgym.envs.exploration.language import Language, Part


@dataclass(frozen=True, slots=True)
class Draft:
    """A game that was drawn: `lines` describe it, `said[query][answer]` is what an answer names,
    `claims[value]` what is right if the value is hidden. `arguments` name the queries, or the facts
    if there are several; without them an informing action has no argument. A query
    with the same answer for all values tells nothing."""

    lines: tuple[str, ...]
    said: tuple[tuple[str, ...], ...]
    claims: tuple[str, ...]
    queries: Queries
    arguments: tuple[str, ...] = ()
    facts: int = 1


@dataclass(frozen=True, slots=True)
class Family:
    """Games of one structure. `use` is the kind of use; `sizes` are the numbers of choices, of
    digits or of things to order that a game is drawn with; `person` means that one of several
    persons knows the answer and must be named; the names of the choices have `words` words, and are
    `listed` or not."""

    part: Part
    use: str
    sizes: Sequence[int]
    person: bool = False
    words: int = 1
    listed: bool = True
    base: int = 2


_FILE = resources.files("agentsgym.envs.exploration").joinpath("families.json")
FAMILIES: Mapping[str, Family] = {
    name: Family(**family) for name, family in json.loads(_FILE.read_text("utf-8")).items()
}
"""All families by their names."""


def families_of(part: Part) -> list[str]:
    """The names of a part's families."""
    return [name for name, family in FAMILIES.items() if family.part == part]


def drawn(family: Family, language: Language) -> Draft:
    """A game of a family."""
    size = language.rng.choice(family.sizes)
    return _DRAFTS[family.use](family, language, size)


# -- one query, which tells everything -------------------------------------------------------------


def _names(family: Family, language: Language, count: int) -> list[str]:
    """The names of choices, of `words` words each."""
    draw = language.names if family.listed else language.any_names
    parts = [draw(count) for _ in range(family.words)]
    return [" ".join(words) for words in zip(*parts, strict=True)]


def _one_look(
    family: Family, language: Language, lines: Sequence[str], said: list[str], claims: list[str]
) -> Draft:
    """A game in which one answer tells everything: from one of several persons, or from nobody."""
    values = tuple(range(len(claims)))
    if not family.person:
        return Draft((*lines, language.say("bare")), (tuple(said),), tuple(claims), (values,))
    persons = language.names(3)
    who = language.say("person", who=persons[0])
    nothing = (0,) * len(values)
    return Draft(
        (*lines, who),
        (tuple(said), ("nothing",), ("nothing",)),
        tuple(claims),
        (values, nothing, nothing),
        tuple(persons),
    )


def _copy(family: Family, language: Language, size: int) -> Draft:
    """What the answer names is right."""
    names = _names(family, language, size)
    listed = [language.say("list", list=_listed(names))] if family.listed else []
    return _one_look(family, language, [*listed, language.say("copy")], names, names)


def _lookup(family: Family, language: Language, size: int) -> Draft:
    """The answer names an entry of a table, and what stands beside it is right."""
    keys, entries = _names(family, language, size), language.names(size)
    left, right = (entries, keys) if family.use == "reverse" else (keys, entries)
    table = _table(language, "means", left, right)
    return _one_look(family, language, [table, language.say("lookup")], keys, entries)


def _partner(family: Family, language: Language, size: int) -> Draft:
    """Names come in pairs, and the partner of the one that the answer names is right."""
    names = _names(family, language, size)
    half = size // 2
    table = _table(language, "pair", names[:half], names[half:])
    partners = names[half:] + names[:half]
    return _one_look(family, language, [table, language.say("partner")], names, partners)


def _next(family: Family, language: Language, size: int) -> Draft:
    """The name after the one that the answer names is right; the first comes after the last."""
    names = _names(family, language, size)
    lines = [language.say("list", list=_listed(names)), language.say("next")]
    return _one_look(family, language, lines, names, [*names[1:], names[0]])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


def _table(language: Language, role: str, left: Sequence[str], right: Sequence[str]) -> str:
    """Pairs in random order, all in the same pattern."""
    pattern = language.pattern(role)
    entries = [pattern.format(a=a, b=b) for a, b in zip(left, right, strict=True)]
    language.rng.shuffle(entries)
    return f"{_listed(entries)}."


# -- several queries, each of which tells a part ---------------------------------------------------


def _several(
    language: Language,
    lines: Sequence[str],
    things: Sequence[str],
    said: Sequence[Sequence[str]],
    claims: Sequence[str],
    values: Sequence[Sequence[int]],
) -> Draft:
    """A game in which the answer about `things[q]` tells `values[v][q]` of value v."""
    each = language.say("each", each=_listed(things))
    queries = tuple(tuple(value[q] for value in values) for q in range(len(things)))
    return Draft((*lines, each), tuple(map(tuple, said)), tuple(claims), queries, tuple(things))


def _digits(size: int, base: int) -> list[tuple[int, ...]]:
    """The digits of each value, of which the first changes fastest."""
    return [digits[::-1] for digits in product(range(base), repeat=size)]


def _subset(family: Family, language: Language, size: int) -> Draft:
    """Each thing is in one of two states; those in one of them are right, all together."""
    things, (no, yes) = language.names(size), language.names(2)
    values = _digits(size, 2)
    claims = [
        " ".join(name for name, bit in zip(things, bits, strict=True) if bit) or "none"
        for bits in values
    ]
    lines = [language.say("works", yes=yes)]
    return _several(language, lines, things, [(no, yes)] * size, claims, values)


def _halves(family: Family, language: Language, size: int) -> Draft:
    """Each group has half of the names, and the answer about it is whether the right one is in
    it."""
    values = _digits(size, 2)
    names, groups = language.names(len(values)), language.names(size)
    members = [
        " ".join(name for name, bits in zip(names, values, strict=True) if bits[q])
        for q in range(size)
    ]
    lines = [
        language.say("list", list=_listed(names)),
        _table(language, "means", groups, members),
        language.say("halves"),
    ]
    return _several(language, lines, groups, [("no", "yes")] * size, names, values)


def _route(family: Family, language: Language, size: int) -> Draft:
    """At each crossing one direction is right, and the whole way is paid."""
    crossings, directions = language.names(size), language.names(family.base)
    values = _digits(size, family.base)
    claims = [" ".join(directions[d] for d in value) for value in values]
    lines = [
        language.say("list", list=_listed(directions)),
        language.say("route", first=crossings[0], last=crossings[-1]),
    ]
    return _several(language, lines, crossings, [directions] * size, claims, values)


def _order(family: Family, language: Language, size: int) -> Draft:
    """The answer about two names is which of them comes first; the whole order is right."""
    names = language.names(size)
    orders = list(permutations(range(size)))
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    values = [tuple(int(order.index(a) > order.index(b)) for a, b in pairs) for order in orders]
    said = [(names[a], names[b]) for a, b in pairs]
    things = [f"{names[a]} {names[b]}" for a, b in pairs]
    claims = [" ".join(names[k] for k in order) for order in orders]
    return _several(language, [language.say("order")], things, said, claims, values)


def _places(family: Family, language: Language, size: int) -> Draft:
    """The answer about a place in an order names who has it; the whole order is right."""
    names, places = language.names(size), language.names(size)
    values = list(permutations(range(size)))
    lines = [
        language.say("list", list=_listed(names)),
        language.say("route", first=places[0], last=places[-1]),
    ]
    claims = [" ".join(names[k] for k in order) for order in values]
    return _several(language, lines, places, [names] * size, claims, values)


def _mapping(family: Family, language: Language, size: int) -> Draft:
    """Two keys have a value each, and an episode is about one of the keys."""
    names, keys = _names(family, language, size), tuple(language.names(2))
    lines = [
        language.say("list", list=_listed(names)),
        language.say("each", each=_listed(keys)),
        language.say("copy"),
    ]
    values = tuple(range(size))
    return Draft(tuple(lines), (tuple(names),), tuple(names), (values,), keys, facts=2)


_DRAFTS: Mapping[str, Callable[[Family, Language, int], Draft]] = {
    "copy": _copy,
    "lookup": _lookup,
    "reverse": _lookup,
    "partner": _partner,
    "next": _next,
    "subset": _subset,
    "halves": _halves,
    "route": _route,
    "order": _order,
    "places": _places,
    "mapping": _mapping,
}
