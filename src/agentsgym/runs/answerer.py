"""The section `answerer` of a run: a chat endpoint answers the questions of Twenty Questions.

Only a run file or a command line names an endpoint. `env_config` does not, because it is copied
into dataset rows, which are not trusted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.envs.twenty_questions import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.answerer import LLMAnswerer
from agentsgym.generation.chat import DEFAULT_CONCURRENCY, ChatClient
from agentsgym.generation.settings import ChatEndpoint
from agentsgym.types import Message, SamplingParams

_GREEDY = SamplingParams(max_tokens=512, temperature=0.0)


class EndpointAnswerer(LLMAnswerer):
    """A language model behind an endpoint; it can be asked inside the block of `opened`."""

    def __init__(self, endpoint: ChatEndpoint) -> None:
        super().__init__(self._said)
        self._endpoint = endpoint
        self._client: ChatClient | None = None

    @contextmanager
    def opened(self) -> Iterator[ChatClient]:
        """Connect, and close the connections at the end. Raises EndpointError if nothing answers,
        MissingKey."""
        endpoint = self._endpoint
        client = ChatClient(
            endpoint.urls[0],
            endpoint.served_model,
            key_env=endpoint.key_env,
            concurrency=endpoint.capacity or DEFAULT_CONCURRENCY,
        )
        try:
            client.check()
            self._client = client
            yield client
        finally:
            self._client = None
            client.close()

    def _said(self, messages: Sequence[Message]) -> str:
        client = self._client
        if client is None:
            raise RuntimeError("the answerer's endpoint is only asked while a run plays")
        return client.complete(messages, _GREEDY)


def attach_answerer(env: MultistepEnv, endpoint: ChatEndpoint) -> None:
    """Let the endpoint of the section answer in `env`. Nothing is asked before `answering`.

    Raises ConfigError if the environment cannot use it.
    """
    if not isinstance(env, TwentyQuestionsEnv):
        raise ConfigError(f"answerer is only for TwentyQuestions; {env.name} asks no endpoint")
    if env.config.workers:
        raise ConfigError("answerer asks from this process; set env_config.workers to 0")
    if env.config.information_reward:
        raise ConfigError(
            "env_config.information_reward counts the table's answers; "
            "set it to 0 or leave answerer out"
        )
    env.answerer = EndpointAnswerer(endpoint)
    env.blocking = True  # type: ignore[misc]


@contextmanager
def answering(env: MultistepEnv, note: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, the endpoint of the environment's answerer can be asked, if it has one.

    At the end its connections are closed, and `note` is told what it was asked. Raises
    EndpointError if nothing answers there, MissingKey.
    """
    answerer = getattr(env, "answerer", None)
    if not isinstance(answerer, EndpointAnswerer):
        yield
        return
    with answerer.opened() as client:
        try:
            yield
        finally:
            used = client.usage
            note(
                f"answerer: {used.requests} answers of {client.model}, {used.prompt_tokens} tokens "
                f"read and {used.completion_tokens} written"
            )
