"""The syntax trees of chat templates, parsed as transformers parses them."""

from functools import lru_cache

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser


class GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's text; it does not change the output. What is set in
    it is not set after it, since transformers renders it as a call."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


BLOCKS = (
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.AssignBlock,
    nodes.Block,
    nodes.Extends,
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
)
"""Constructs that render a part of a template to a text and go on with it, or read another
template. A macro does so too."""

# The environment only parses templates. Prompts are not HTML.
_ENVIRONMENT = Environment(  # noqa: S701
    trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationBlock]
)


@lru_cache(maxsize=64)
def parse_template(template: str) -> nodes.Template | None:
    """The syntax tree of a chat template (do not change it); None if the text is no template."""
    try:
        return _ENVIRONMENT.parse(template)
    except (TemplateError, RecursionError):
        return None


def names_read(template: str) -> frozenset[str]:
    """The variables that a template reads from outside (empty if the text is no template)."""
    tree = parse_template(template)
    return frozenset(find_undeclared_variables(tree)) if tree is not None else frozenset()
