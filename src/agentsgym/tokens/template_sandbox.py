"""A script: render short conversations with a chat template under limits of time and memory.

Reads one JSON object from standard input (`template`, `variables`, `cpu_seconds`, `memory`,
`characters`) and exits with status 0 if the template kept the limits. It is run by path, so that
it imports nothing but jinja2.
"""

import json
import sys
from datetime import datetime

from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOO_LONG = 3
_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 25, 40)
_SAYS = ("Is it an animal?", "<think>\nhm\n</think>\n\nyes", "")


class _Generation(Extension):
    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser):  # type: ignore[no-untyped-def]
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _limit(cpu_seconds: int, memory: int) -> None:
    try:
        import resource
    except ImportError:  # this platform has no such limits; the parent's timeout remains
        return
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _refuse(message: str) -> None:
    raise ValueError(message)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def main() -> int:
    """Render conversations of several lengths, with and without a system message."""
    task = json.load(sys.stdin)
    _limit(task["cpu_seconds"], task["memory"])
    try:
        template = _environment().from_string(task["template"])
    except MemoryError:
        raise
    except Exception:
        return 0  # rendering with it raises a clear error
    for system in (False, True):
        for length in _LENGTHS:
            roles = ["system"] * system + [("user", "assistant")[i % 2] for i in range(length)]
            messages = [{"role": r, "content": _SAYS[i % 3]} for i, r in enumerate(roles)]
            written = 0
            try:
                for piece in template.generate(
                    messages=messages, add_generation_prompt=True, **task["variables"]
                ):
                    written += len(piece)
                    if written > task["characters"]:
                        return TOO_LONG
            except MemoryError:
                raise
            except Exception:  # noqa: S112 - a template may refuse a conversation
                continue
    return 0


if __name__ == "__main__":
    sys.exit(main())
