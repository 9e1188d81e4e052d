"""`agentsgym envs`."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from agentsgym.cli.command import Argument, Command
from agentsgym.cli.console import line, out, print_table, shown
from agentsgym.cli.tables import plain_table
from agentsgym.envs import find
from agentsgym.envs.builtin import KNOWN
from agentsgym.types import with_modules_of
from agentsgym.types.names import import_from_here, install_command

_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_KINDS = {"integer": "whole number", "string": "text", "boolean": "true or false"}


class Envs(Command):
    """List the registered environments, or with a name the settings of one.

    Examples:

        agentsgym envs

        agentsgym envs TwentyQuestions
    """

    name: Argument[str | None] = None
    """A registered name or a dotted path."""

    def __call__(self) -> None:
        if self.name is None:
            _list_environments()
        else:
            _list_settings(self.name)


def _list_settings(name: str) -> None:
    """Each setting of an environment: its default, what is allowed, and what it means."""
    import_from_here(name)
    settings = find(name, with_modules_of(False, name)).Settings
    allowed = settings.model_json_schema()["properties"]
    texts = ("default", "allowed", "meaning")
    table = plain_table("env_config", *texts, texts=texts)
    for key, field in settings.model_fields.items():
        default = "" if field.is_required() else repr(field.get_default(call_default_factory=True))
        cells = (key, default, _allowed(allowed[key]), field.description or "")
        table.add_row(*map(shown, cells))
    print_table(table)


def _allowed(schema: Mapping[str, Any]) -> str:
    """What a JSON schema allows, in words."""
    if "anyOf" in schema:
        return " or ".join(map(_allowed, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum") or [schema["const"]]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of: {_allowed(schema.get('items', {}))}"
    limits = [f"{sign} {schema[key]:,}" for key, sign in _LIMITS.items() if key in schema]
    return " ".join([_KINDS.get(kind, kind), " and ".join(limits)]).strip()


def _list_environments() -> None:
    table = plain_table("environment", "installed", "description", texts=["description"])
    missing: dict[str, list[str]] = {}
    for name, env in sorted(KNOWN.items()):
        installed = env.extra is None or env.module is None or find_spec(env.module) is not None
        if env.extra is not None and not installed:
            missing.setdefault(install_command(env.extra), []).append(name)
        table.add_row(name, "yes" if installed else "no", shown(env.help))
    print_table(table)
    for command, names in missing.items():
        out.print(f"\nTo install {', '.join(names)}:")
        line(command)
    out.print(
        "\nPlay one with [bold]agentsgym play NAME[/]; "
        "[bold]agentsgym envs NAME[/] lists its settings."
    )
