"""Proves that a chat template renders each message independently (that it is local).

In a local template the rendering of a message depends only on that message, on whether it is the
first, and on the first message. So rendered text never changes, and new messages can be rendered
without the middle of the conversation. The proof reads the template's syntax tree and knows few
constructs; a template with any other construct does not count as local.
"""

from collections.abc import Iterator

from jinja2 import nodes

from agentsgym.tokens.syntax import parse_template

_CONVERSATION = "messages"
_REFUSED = (
    nodes.NSRef,  # carries a value from one message to the next
    nodes.Macro,
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.Block,
    nodes.Extends,
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Break,
    nodes.Continue,
)


def is_local(template: object) -> bool:
    """Whether a chat template is provably local; False if in doubt."""
    tree = parse_template(template) if isinstance(template, str) else None
    if tree is None:
        return False
    if sum(_is_conversation(loop.iter) for loop in tree.find_all(nodes.For)) != 1:
        return False
    allowed = {id(name) for name in _allowed_names(tree)}
    return not any(_refused(node, allowed) for node in tree.find_all(nodes.Node))


def reads_first_message(template: object) -> bool:
    """Whether a local template's text for a later message may depend on the first message."""
    tree = parse_template(str(template))
    return tree is None or any(_is_conversation(item.node) for item in tree.find_all(nodes.Getitem))


def _is_conversation(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == _CONVERSATION


def _allowed_names(tree: nodes.Template) -> Iterator[nodes.Name]:
    """The uses of `messages` and `loop` that keep a template local."""
    # Only a loop at the top level: inside another one it would run more than once.
    for loop in _at_top(tree.body):
        if isinstance(loop.iter, nodes.Name) and loop.test is None and not loop.recursive:
            yield loop.iter
    for item in tree.find_all(nodes.Getitem):
        first = isinstance(item.arg, nodes.Const) and item.arg.value == 0
        if first and isinstance(item.node, nodes.Name):
            yield item.node
    for attribute in tree.find_all(nodes.Getattr):
        name = attribute.node
        if attribute.attr == "first" and isinstance(name, nodes.Name) and name.name == "loop":
            yield name


def _at_top(body: list[nodes.Node]) -> Iterator[nodes.For]:
    """The template's loops that are in no other loop."""
    for node in body:
        if isinstance(node, nodes.For):
            yield node
        elif isinstance(node, nodes.If):
            yield from _at_top([*node.body, *node.elif_, *node.else_])


def _refused(node: nodes.Node, allowed: set[int]) -> bool:
    if isinstance(node, _REFUSED):
        return True
    if isinstance(node, nodes.Name) and node.name in (_CONVERSATION, "loop"):
        return node.ctx != "load" or id(node) not in allowed
    if isinstance(node, nodes.Call):
        called = node.node
        if isinstance(called, nodes.Name):
            return called.name != "raise_exception"
        return not isinstance(called, nodes.Getattr)
    return isinstance(node, nodes.Filter) and node.name == "random"
