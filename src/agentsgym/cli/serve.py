"""`agentsgym serve`: an environment for the clients of OpenEnv."""

import contextlib
from typing import Annotated

import typer

from agentsgym.cli.console import out
from agentsgym.cli.options import NameArgument, SettingsArgument, env_config_of
from agentsgym.envs import make
from agentsgym.generation.settings import read_key
from agentsgym.integrations.openenv.server import serve as serve_env
from agentsgym.types import with_modules_of
from agentsgym.types.names import import_from_here


def serve(
    name: NameArgument,
    settings: SettingsArgument = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Where to listen; another one than loopback needs --token-env.")
    ] = "127.0.0.1",
    sessions: Annotated[
        int, typer.Option(min=1, help="Sessions at once; a client beyond them is refused.")
    ] = 64,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that play the episodes [the environment's own]."),
    ] = None,
    idle_timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds without a message after which a session ends.")
    ] = 600.0,
    token_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the token clients need."),
    ] = None,
) -> None:
    """Serve an environment to the clients of OpenEnv.

    Clients open a WebSocket, name a task by split and number or by seed, and are told nothing that
    the environment does not say itself. Ctrl-C ends the server.

    Examples:

        agentsgym serve Bandit

        agentsgym serve ALFWorld --workers 2 --sessions 16

        agentsgym serve TwentyQuestions env_config.hints=3 --host 0.0.0.0 --token-env SERVE_TOKEN
    """
    import_from_here(name)
    given = env_config_of(settings)
    if workers is not None:
        given["workers"] = workers
    token = read_key(token_env)
    env = make(name, None, given, trust=with_modules_of(False, name))

    def tell(address: str) -> None:
        out.print(f"{env.name}: {address}", soft_wrap=True)
        out.print(f"{sessions} sessions at once; Ctrl-C ends the server.")

    with contextlib.suppress(KeyboardInterrupt):
        serve_env(
            env,
            sessions,
            idle_timeout,
            host=host,
            port=port,
            token=token,
            started=tell,
        )
    out.print("ended")
