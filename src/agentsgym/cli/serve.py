"""`agentsgym serve`: an environment for the clients of OpenEnv."""

import contextlib
from typing import Annotated

import typer
from pydantic import Field

from agentsgym.cli.command import Argument, Command, Settings, env_config_of
from agentsgym.cli.console import out
from agentsgym.envs import make
from agentsgym.generation.settings import read_key
from agentsgym.integrations.openenv.server import serve
from agentsgym.types import with_modules_of
from agentsgym.types.names import import_from_here


class Serve(Command):
    """Serve an environment to the clients of OpenEnv.

    Clients open a WebSocket, name a task by split and number or by seed, and are told nothing that
    the environment does not say itself. Ctrl-C ends the server.

    Examples:

        agentsgym serve Bandit

        agentsgym serve ALFWorld --workers 2 --sessions 16

        agentsgym serve TwentyQuestions env_config.hints=3 --host 0.0.0.0 --token-env SERVE_TOKEN
    """

    name: Argument[str]
    """A registered environment or the dotted path of a class."""
    settings: Settings
    port: int = Field(8000, ge=0, le=65535)
    """0 takes a free one."""
    host: str = "127.0.0.1"
    """Where to listen; another one than loopback needs --token-env."""
    sessions: int = Field(64, ge=1)
    """Sessions at once; a client beyond them is refused."""
    workers: int | None = Field(None, ge=0)
    """Processes that play the episodes [the environment's own]."""
    idle_timeout: float = Field(600.0, ge=1.0)
    """Seconds without a message after which a session ends."""
    token_env: Annotated[str | None, typer.Option(metavar="NAME")] = None
    """Environment variable with the token clients need."""

    def __call__(self) -> None:
        import_from_here(self.name)
        given = env_config_of(self.settings)
        if self.workers is not None:
            given["workers"] = self.workers
        token = read_key(self.token_env)
        env = make(self.name, None, given, trust=with_modules_of(False, self.name))

        def tell(address: str) -> None:
            out.print(f"{env.name}: {address}", soft_wrap=True)
            out.print(f"{self.sessions} sessions at once; Ctrl-C ends the server.")

        with contextlib.suppress(KeyboardInterrupt):
            serve(
                env,
                self.sessions,
                self.idle_timeout,
                host=self.host,
                port=self.port,
                token=token,
                started=tell,
            )
        out.print("ended")
