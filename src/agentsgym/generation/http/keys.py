"""Keys of endpoints: only read from environment variables, and never shown."""

import os

from agentsgym.types.text import remember_secret


class MissingKey(RuntimeError):
    """The environment variable that should hold an endpoint's key is not set."""


def read_key(key_env: str | None) -> str | None:
    """The key in the environment variable `key_env`, masked from now on; None for None.

    Raises MissingKey if the variable is unset or empty.
    """
    if key_env is None:
        return None
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise MissingKey(
            f"the endpoint's key is missing: set the environment variable {key_env}, or name none "
            "(key_env) for an endpoint that needs no key"
        )
    remember_secret(key)
    return key
