"""Python functions as tools: their schemas, the check of arguments, and one call."""

import inspect
import json
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError, validate_call
from pydantic.errors import PydanticUserError

from agentsgym.generation.loop_thread import LoopThread
from agentsgym.types.messages import ToolSchema
from agentsgym.types.names import ConfigError
from agentsgym.types.text import plain

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_is_tool"


class ToolError(RuntimeError):
    """A call failed; the message is the answer that the model reads."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool returns that pays, or ends the episode.

    Attributes:
        text: the result that the model reads: a text, or anything else, which becomes JSON.
        reward: what the call earns. The rewards of all calls of an action add up.
        done: whether the episode is over; `grade` is not asked then. A reward of True is 1.0 and,
            with `done`, a win; False is 0.0 and none.
    """

    text: Any
    reward: float = 0.0
    done: bool = False


def tool(method: Method) -> Method:
    """Marks a method `(self, state, …)` of a `ToolEnv` as a tool. The model gives the arguments
    after `state`, the state of the episode."""
    method.__dict__[_MARK] = True
    return method


def marked_tools(env_class: type) -> "list[FunctionTool]":
    """The methods that are tools, in the order of their definitions, base classes first."""
    names = {
        name: None
        for base in reversed(env_class.__mro__)
        for name, value in vars(base).items()
        if getattr(value, _MARK, False)
    }
    return [FunctionTool(getattr(env_class, name), method=True) for name in names]


class FunctionTool:
    """A function with type hints and a docstring, or a `method` that also gets the environment and
    the state of the episode. An async function `waits`: it is awaited, for a limited time.

    Raises ConfigError for a function that lacks hints or a docstring.
    """

    def __init__(self, function: Callable[..., Any], *, method: bool = False) -> None:
        if not callable(function) or not hasattr(function, "__name__"):
            raise ConfigError(f"a tool is a function or McpTools, got {function!r}")
        self._function = function
        self._method = method
        self.schema = _schema(function, method)
        self.waits = inspect.iscoroutinefunction(function)

    def run(self, env: Any, state: Any, arguments: Mapping[str, Any], seconds: float) -> Outcome:
        """What one call gives, with its result as text."""
        try:
            given = _arguments(self._function, self._method)(**arguments)
        except ValidationError as error:
            raise ToolError(_problems(error)) from None
        before = (env, state) if self._method else ()
        result = self._function(*before, **given)
        if inspect.iscoroutine(result):
            result = in_time(result, seconds)
        outcome = result if isinstance(result, Outcome) else Outcome(result)
        if isinstance(outcome.text, str):
            return outcome
        return replace(outcome, text=json.dumps(plain(outcome.text), ensure_ascii=False))


def in_time(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
    """The result of a coroutine, which runs in the process's loop for tools. Raises ToolError after
    so many seconds, also if something else blocks the loop."""
    future = tool_loop().start(_contained(work))
    try:
        return future.result(seconds)
    except BaseException as error:
        late = isinstance(error, TimeoutError) and not future.done()
        future.cancel()
        if late:
            raise ToolError(f"no result within {seconds:g} seconds") from None
        raise


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # it would end the loop
        raise ToolError(f"{type(error).__name__}: {error}") from None


_LOOPS: list[LoopThread] = []
_MAKING = threading.Lock()


def tool_loop() -> LoopThread:
    """The event loop in which async tools and connections to servers live, one per process."""
    with _MAKING:
        if not _LOOPS or not _LOOPS[0].alive:
            _LOOPS[:] = [LoopThread("agentsgym-tools")]
        return _LOOPS[0]


@lru_cache(maxsize=1024)
def _arguments(function: Callable[..., Any], method: bool) -> Callable[..., dict[str, Any]]:
    """A function of the same parameters that checks and converts its arguments."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigError(f"a type hint of the tool {function.__name__}: {error}") from None
    parameters = list(inspect.signature(function).parameters.values())[2 if method else 0 :]
    for one in parameters:
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) or one.name not in hints:
            raise ConfigError(
                f"the tool {function.__name__} needs a type hint for its parameter {one.name!r}, "
                "and no *arguments"
            )

    def arguments(**given: Any) -> dict[str, Any]:
        return given

    own = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in parameters]
    arguments.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    arguments.__annotations__ = {one.name: one.annotation for one in own}
    return validate_call(arguments)


def _schema(function: Callable[..., Any], method: bool) -> ToolSchema:
    from transformers.utils.chat_template_utils import parse_google_format_docstring

    name = function.__name__
    document = inspect.getdoc(function)
    if not document:
        raise ConfigError(f"the tool {name} needs a docstring: it tells the model what it does")
    description, described, _ = parse_google_format_docstring(document)
    checked: Any = _arguments(function, method)
    try:
        parameters = TypeAdapter(checked).json_schema()
    except PydanticUserError as error:
        raise ConfigError(f"the tool {name} has no JSON schema: {error}") from None
    parameters.pop("additionalProperties", None)
    for key, value in parameters.setdefault("properties", {}).items():
        value.pop("title", None)
        if key in described:
            value["description"] = described[key]
    function_schema = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function_schema}


def _problems(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    )
