"""The next prompt, as a worker sends it with the answer to an action."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailedPrompt:
    """The environment raised an error where it was to write the prompt. It counts only if somebody
    needs the prompt: after the last step that a session may take, nobody does."""

    traceback: str
