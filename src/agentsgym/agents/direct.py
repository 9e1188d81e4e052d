"""The model-backed agent: the model's text is the action."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentsgym.tokens import Codec, codec_for
from agentsgym.types import Engine, GenerationRequest, Message, SamplingParams, wait_for


class DirectOutputAgent:
    """Samples every action from an engine and uses its text unchanged.

    Rollouts pass token ids to the engine and keep the sampled ids. `get_action` is for callers
    that hold a conversation as messages: it renders them with `template_options` (extra arguments
    of the tokenizer's chat template). A subclass that overrides `get_action` is called through it
    everywhere, one session at a time; the environment then tokenizes its words, and its rows have
    `sampled=False`.
    """

    def __init__(
        self,
        engine: Engine,
        sampling: SamplingParams | None = None,
        *,
        seed: int = 0,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine = engine
        self.sampling = sampling or SamplingParams()
        self._seed = seed
        self._template_options = template_options
        self._codec: Codec | None = None

    def get_action(self, messages: list[dict[str, Any]], agent_state: Any) -> tuple[str, Any]:
        """Sample one action. The state counts sampled tokens, so that noise is never reused."""
        sampled = int(agent_state or 0)
        session_id = f"direct-{id(self)}"
        known = [Message.of(message) for message in messages]
        context = self._context(known)
        ends = self._codec.ends if self._codec else ()
        self.engine.submit(
            [
                GenerationRequest(
                    session_id=session_id,
                    token_ids=context,
                    sampling=replace(self.sampling, stop_token_ids=ends),
                    seed=self._seed,
                    sampled_before=sampled,
                    messages=known,
                )
            ]
        )
        result = wait_for(self.engine, session_id)
        self.engine.release([session_id])
        if result.finish_reason == "error":
            raise RuntimeError(f"the engine could not sample an action: {result.error}")
        return result.text, sampled + len(result.token_ids or ())

    def _context(self, messages: Sequence[Message]) -> Sequence[int]:
        """The conversation as token ids; empty for an engine that answers messages."""
        tokenizer = self.engine.tokenizer
        if tokenizer is None:
            return ()
        if self._codec is None:
            self._codec = codec_for(tokenizer, self._template_options)
        return self._codec.open(messages).token_ids
