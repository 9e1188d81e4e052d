"""Renders a conversation by filling its contents into a text that was rendered before.

Most chat templates write a conversation's contents unchanged, and decide everything else by the
roles alone. This is found out, not assumed: the template is rendered once for a sequence of roles
with contents that stand for any text. A `_Content` answers the few questions that templates ask of
one ("does it hold `</think>`?", "is it empty?") as for an ordinary text, and notes the question;
any other use of it, and any construct in which its use could go unnoticed, ends the attempt. The
result holds for exactly the contents with the same answers. It is used only after it also gave the
text that transformers rendered.
"""

import itertools
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.ext import loopcontrols
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from agentsgym.tokens.syntax import BLOCKS, GenerationBlock, parse_template
from agentsgym.types import Message

_MOST_MESSAGES = 256
_MOST_SKELETONS = 1024

# Constructs that turn contents into texts that are not watched any more, or escape what is printed.
_REFUSED = (*BLOCKS, nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)


class _Looked(Exception):
    """The template uses a content in a way that is not understood."""


@dataclass(frozen=True, slots=True)
class _Fact:
    """`str.method(content, *args)` is `result` for content number `index`; None: the content."""

    index: int
    method: str
    args: tuple[Any, ...]
    result: bool | None

    def holds(self, contents: Sequence[str]) -> bool:
        """Whether these contents give the same answer."""
        content = contents[self.index]
        found = getattr(content, self.method)(*self.args)
        return bool(found == content if self.result is None else bool(found) == self.result)


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """Texts, and the numbers of the contents between them."""

    parts: tuple[str | int, ...]
    facts: tuple[_Fact, ...]

    def filled(self, contents: Sequence[str]) -> str | None:
        """The rendered text; None if one of the contents is not as the template expects."""
        if not all(fact.holds(contents) for fact in self.facts):
            return None
        return "".join([contents[p] if isinstance(p, int) else p for p in self.parts])


class Skeletons:
    """The skeletons of one chat template, by the roles of a conversation.

    Args:
        text: the template.
        variables: what it is rendered with besides the messages.
    """

    def __init__(self, text: str | None, variables: Mapping[str, Any]) -> None:
        self._text, self._variables = text, dict(variables)
        self._proven: dict[tuple[str, ...], _Skeleton] = {}
        self._found: dict[tuple[str, ...], _Skeleton | None] = {}
        self._template: Any = None
        self._usable = text is not None and _is_watchable(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Skeletons, (self._text, self._variables)

    def fill(self, messages: Sequence[Message]) -> str | None:
        """The conversation as the template renders it; None if it has to be rendered."""
        if not self._usable:
            return None
        skeleton = self._proven.get(_roles(messages))
        if skeleton is None or _has_more(messages):
            return None
        return skeleton.filled([m["content"] for m in messages])

    def learn(self, messages: Sequence[Message], rendered: str) -> None:
        """Keep the skeleton of a conversation that transformers has rendered, if it has one."""
        roles = _roles(messages)
        if not self._usable or roles in self._proven or _has_more(messages):
            return
        found = self._find(roles)
        text = None if found is None else found.filled([m["content"] for m in messages])
        if found is not None and text == rendered:
            self._proven[roles] = found
        elif text is not None:
            self._usable = False

    def _find(self, roles: tuple[str, ...]) -> _Skeleton | None:
        """The skeleton for these roles, which is not proven yet."""
        if roles not in self._found:
            if len(roles) > _MOST_MESSAGES or len(self._found) >= _MOST_SKELETONS:
                return None
            self._found[roles] = self._skeleton(roles)
        return self._found[roles]

    def _skeleton(self, roles: Sequence[str]) -> _Skeleton | None:
        facts: dict[_Fact, None] = {}
        _FACTS.set(facts)
        messages = [
            {"role": role, "content": _content(index, facts)} for index, role in enumerate(roles)
        ]
        try:
            self._template = self._template or _compiled(str(self._text))
            text = self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._variables,
            )
        except Exception:  # whatever a template raises: it is then rendered by transformers
            return None
        parts = tuple(_parts(text))
        broken = any(_has_mark(part) for part in parts if isinstance(part, str))
        return None if broken else _Skeleton(parts, tuple(facts))


def _roles(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple([message["role"] for message in messages])


def _has_more(messages: Sequence[Message]) -> bool:
    """Whether a message has more than a role and a content."""
    return sum(map(len, messages)) != 2 * len(messages)


# Noncharacters of Unicode, as in control.py; other ones. No template or role can write the secret.
_START, _END, _SECRET = "\ufdd2", "\ufdd3", secrets.token_hex(8)
_MARK = re.compile(f"{_START}{_SECRET}:([0-9]+){_END}")


def _has_mark(text: str) -> bool:
    """Whether a text holds a mark, or a piece of one."""
    return _START in text or _END in text


def _parts(text: str) -> Iterator[str | int]:
    for number, piece in enumerate(_MARK.split(text)):
        if number % 2:
            yield int(piece)
        elif piece:
            yield piece


class _Content(str):
    """Stands for any content that answers the `facts` noted; its own text is only a mark.

    Templates can read no attribute that begins with an underscore.
    """

    __slots__ = ("_facts", "_number")
    _number: int | None
    _facts: dict[_Fact, None]

    def _joined(self, text: str) -> "_Content":
        """A text that holds contents and answers no questions."""
        return _watched(text, None, self._facts)

    def _note(self, method: str, args: tuple[Any, ...], result: bool | None) -> None:
        if self._number is None or any(type(arg) is not str for arg in args):
            raise _Looked(method)
        self._facts[_Fact(self._number, method, args, result)] = None

    def __add__(self, other: Any) -> "_Content":
        return self._joined(_plain(self) + _plain(other))

    def __radd__(self, other: Any) -> "_Content":
        return self._joined(_plain(other) + _plain(self))

    def __contains__(self, part: Any) -> bool:
        self._note("__contains__", (part,), False)
        return False

    def __eq__(self, other: object) -> bool:
        self._note("__eq__", (other,), False)
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __len__(self) -> int:
        self._note("__len__", (), True)
        return 1

    def startswith(self, *args: Any) -> bool:
        self._note("startswith", args, False)
        return False

    def endswith(self, *args: Any) -> bool:
        self._note("endswith", args, False)
        return False

    def strip(self, *args: Any) -> str:
        self._note("strip", args, None)
        return self

    def lstrip(self, *args: Any) -> str:
        self._note("lstrip", args, None)
        return self

    def rstrip(self, *args: Any) -> str:
        self._note("rstrip", args, None)
        return self


_FACTS: ContextVar[dict[_Fact, None]] = ContextVar("facts")
"""The facts of the skeleton that is being made in this thread."""


def _content(number: int, facts: dict[_Fact, None]) -> _Content:
    """The content of message number `number`."""
    return _watched(f"{_START}{_SECRET}:{number}{_END}", number, facts)


def _watched(text: str, number: int | None, facts: dict[_Fact, None]) -> _Content:
    content = _Content(text)
    content._number, content._facts = number, facts
    return content


def _refuse(self: object, *args: object, **options: object) -> NoReturn:
    raise _Looked


_ASKS = {"__format__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__repr__"}
_KNOWN = {name for name in vars(_Content) if name != "__hash__"}
for _name in set(dir(str)) - _KNOWN - (set(dir(object)) - _ASKS):
    setattr(_Content, _name, _refuse)


def _plain(value: Any) -> str:
    """The text of a string without asking its class. Raises _Looked for anything else."""
    if type(value) not in (str, _Content):
        raise _Looked
    return str.__str__(value)


class _Environment(ImmutableSandboxedEnvironment):
    """Renders as transformers does, and lets no content into a function, filter or operator, and
    none out of one as a text that is not watched."""

    intercepted_binops = frozenset(("-", "*", "/", "//", "**", "%"))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Operators other than `+`, which contents know themselves."""
        _without_contents(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *args: Any, **options: Any) -> Any:
        """Functions and methods; a content's own methods note what they are asked, and a macro's
        body is watched as the rest of the template is."""
        if isinstance(function, Macro):
            return _of_macro(super().call(context, function, *args, **options))
        given = options if hasattr(function, "jinja_pass_arg") else _without_scope(options)
        _without_contents(*args, *given.values())
        return _still_watched(super().call(context, function, *args, **options))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """No content is a key."""
        _without_contents(argument)
        return super().getitem(obj, argument)


def _without_scope(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments without the variables of loop and block, which Jinja hands to every call
    for functions that ask for the context."""
    return {name: options[name] for name in options.keys() - {"_loop_vars", "_block_vars"}}


def _of_macro(text: Any) -> Any:
    """What a macro has written: a content again if it wrote this content and nothing else."""
    if not isinstance(text, str) or not _MARK.search(text):
        return text
    only = _MARK.fullmatch(text)
    return _watched(text, int(only[1]) if only else None, _FACTS.get())


_OF_LISTS = ("length", "count", "list", "first", "last", "reverse")
_ASKED_OF_TYPES = ("defined", "undefined", "none", "string", "mapping", "number", "boolean")


def _environment() -> _Environment:
    env = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )
    env.filters = {
        name: _guarded(function, whole=name in _OF_LISTS) for name, function in env.filters.items()
    }
    env.filters |= {"trim": _trim, "tojson": _refuse, "random": _refuse}
    env.filters[_SEARCHED] = _guarded(lambda value: value)
    env.tests = {
        name: test if name in _ASKED_OF_TYPES else _guarded(test)
        for name, test in env.tests.items()
    }
    env.globals |= {"raise_exception": _refuse, "strftime_now": _refuse, "lipsum": _refuse}
    return env


def _compiled(text: str) -> Any:
    """The template; what it searches in something else goes through a filter of ours, since
    `x in y` asks the class of `y` alone."""
    env = _environment()
    tree: Any = env.parse(text)
    for compare in list(tree.find_all(nodes.Compare)):
        if compare.ops[0].op in _MEMBERSHIP:
            compare.expr = _searched(compare.expr)
        for operand, after in itertools.pairwise(compare.ops):
            if after.op in _MEMBERSHIP:
                operand.expr = _searched(operand.expr)
    return env.from_string(tree.set_environment(env))


_SEARCHED, _MEMBERSHIP = "agentsgym_searched", ("in", "notin")


def _searched(node: nodes.Expr) -> nodes.Expr:
    return nodes.Filter(node, _SEARCHED, [], [], None, None, lineno=node.lineno)


def _trim(value: Any, *args: Any) -> Any:
    _without_contents(*args)
    return _plain_or_content(value).strip(*args)


def _plain_or_content(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _guarded(function: Any, *, whole: bool = False) -> Any:
    """The function, refusing contents; `whole`: but not lists of messages, whose contents it passes
    on unread."""

    def guarded(*args: Any, **options: Any) -> Any:
        given = (*args, *options.values())
        _without_contents(*(value for value in given if not (whole and isinstance(value, list))))
        return _still_watched(function(*args, **options))

    passed = getattr(function, "jinja_pass_arg", None)
    if passed is not None:
        guarded.jinja_pass_arg = passed  # type: ignore[attr-defined]
    return guarded


def _without_contents(*values: Any) -> None:
    """Raise _Looked if a value is a content or a text, list or dict that holds one, or an object
    whose attributes may be contents."""
    for value in values:
        if isinstance(value, _Content | Namespace | LoopContext):
            raise _Looked
        _still_watched(value)
        if isinstance(value, Mapping):
            _without_contents(*value.values())
        elif isinstance(value, list | tuple):
            _without_contents(*value)


def _still_watched(value: Any) -> Any:
    """The value. Raises _Looked for a text that was made of contents and is watched no more, for
    instance by joining an iterator's, and for one that escapes what is added to it (`Markup`)."""
    if not isinstance(value, str) or isinstance(value, _Content):
        return value
    if type(value) is not str or _has_mark(value):
        raise _Looked
    return value


# Names that mean something else in a `generation` block, which transformers renders as a call.
_OF_CALLS = ("caller", "varargs", "kwargs")


def _is_watchable(text: str) -> bool:
    """Whether no construct of the template can use a content unnoticed."""
    tree = parse_template(text)
    if tree is None or next(tree.find_all(_REFUSED), None) is not None:
        return False
    scoped = (name for scope in tree.find_all(nodes.Scope) for name in scope.find_all(nodes.Name))
    if any(name.name in _OF_CALLS for name in scoped):
        return False
    written = {id(node) for output in tree.find_all(nodes.Output) for node in output.nodes}
    return all(id(node) in written for node in tree.find_all(nodes.Concat))
