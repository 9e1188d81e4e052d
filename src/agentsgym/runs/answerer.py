"""The answerer of a run: a language model that answers in Twenty Questions.

Only a run file or a command line names its endpoint. `env_config` does not, because it is copied
into dataset rows, which are not trusted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from agentsgym.envs import ConfigError, MultistepEnv
from agentsgym.envs.twenty_questions import TwentyQuestionsEnv
from agentsgym.envs.twenty_questions.answerer import LLMAnswerer
from agentsgym.generation.chat import ChatEngine
from agentsgym.generation.settings import ChatEndpoint, EngineParts
from agentsgym.types import Message, SamplingParams

_GREEDY = SamplingParams(max_tokens=512, temperature=0.0)


class EndpointAnswerer(LLMAnswerer):
    """A language model behind an endpoint, which is reached inside the block of `answering`."""

    def __init__(self, endpoint: ChatEndpoint) -> None:
        super().__init__(self._complete)
        self.endpoint = endpoint
        self.engine: ChatEngine | None = None

    def _complete(self, messages: Sequence[Message]) -> str:
        if self.engine is None:
            raise RuntimeError("the answerer's endpoint is only asked while a run plays")
        return self.engine.complete(messages, _GREEDY)


def attach_answerer(env: MultistepEnv, endpoint: ChatEndpoint) -> None:
    """Let the endpoint of the section `answerer` answer in `env`. Nothing is sent before
    `answering`. Raises ConfigError if the environment cannot use it."""
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
    """Inside the block, the endpoint of the environment's answerer is connected, if it has one.

    At the end `note` gets the number of its answers and tokens. Raises EndpointError if nothing
    answers there, MissingKey.
    """
    answerer = getattr(env, "answerer", None)
    if not isinstance(answerer, EndpointAnswerer):
        yield
        return
    engine = answerer.engine = ChatEngine.from_settings(
        answerer.endpoint.as_engine(), EngineParts()
    )
    try:
        yield
    finally:
        used = engine.stats
        answers = used.extra["requests"] - used.extra["failures"]
        note(
            f"answerer: {answers:.0f} answers of {engine.model}, {used.read_tokens} tokens read "
            f"and {used.sampled_tokens} written"
        )
        answerer.engine = None
        engine.close()
