"""Calls of a model, answered by an engine of this process."""

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentsgym.generation.serving.batcher import Batcher
from agentsgym.generation.serving.calls import CallRefused, beside_the_loop
from agentsgym.tokens import Codec, codec_for
from agentsgym.tokens.codec import TemplateCodec
from agentsgym.tokens.folding import folded
from agentsgym.tokens.grammars import Grammar, grammar_of
from agentsgym.types import Answer, GenerationRequest, GenerationResult, ModelCall, SamplingParams
from agentsgym.types.messages import count_calls
from agentsgym.types.requests import context_overflow, is_context_overflow

_ANSWER_TOKENS = 1024
"""The longest answer to a call that names no limit."""
_SPARSE = 8
"""So many characters a token has a text whose length is found out before it is encoded."""
_PIECE = 16_384  # characters
_CUT = 128  # tokens that a piece may have more because its text was cut


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What clients are told of a served model.

    Args:
        name: the name under which it is served.
        root: its directory or its name on the hub.
        max_model_len: the most tokens of context and answer together.
    """

    name: str
    root: str
    max_model_len: int

    def most(self, context: int, wanted: int) -> int:
        """How many of the tokens that are `wanted` fit after a context of so many. Raises
        CallRefused if none does."""
        room = self.max_model_len - context
        if room < 1:
            raise _too_long(context_overflow(context, self.max_model_len))
        return min(wanted, room)


class EngineBackend:
    """A `Backend` whose answers `batcher` samples with the model's own chat template.

    `key` is the one that clients need, None if none; `tokenizer` is the model's.
    """

    def __init__(
        self, batcher: Batcher, facts: ModelFacts, tokenizer: Any, key: str | None = None
    ) -> None:
        self.batcher = batcher
        self.facts = facts
        self._tokenizer = tokenizer
        self._codec = codec_for(tokenizer)
        self._key = key

    def check(self, key: str) -> None:
        """Raise CallRefused for a wrong key."""
        if self._key is not None and not secrets.compare_digest(key.encode(), self._key.encode()):
            raise CallRefused("the key is wrong or missing", 401, code="invalid_api_key")

    async def models(self, key: str) -> list[str]:
        """The model's name."""
        self.check(key)
        return [self.facts.name]

    async def answer(self, key: str, call: ModelCall) -> Answer:
        """Sample an answer to the rendered conversation."""
        self.check(key)
        try:
            size = sum(64 + len(message.content) for message in call.messages)
            codec, context, grammar = await beside_the_loop(size, partial(self._read, call))
        except ValueError as error:  # TemplateFailed, or tools that the template does not show
            raise CallRefused(str(error)) from None
        most = self.facts.most(len(context), call.max_tokens or _ANSWER_TOKENS)
        sampling = SamplingParams(most, stop=call.stop, stop_token_ids=codec.ends)
        request = GenerationRequest("", context, sampling, new_seed(), choices=grammar)
        result = await self.sample(request)
        said = codec.answer(result.token_ids or (), count_calls(call.messages))
        return Answer.of(result, *said).to_call(call, len(context), self._tokenizer)

    def _read(self, call: ModelCall) -> tuple[Codec, tuple[int, ...], Grammar | None]:
        """The codec with the call's tools, the ids of the conversation, and the grammar of the
        answer. Raises ValueError, and CallRefused if it is too long, which is found out before all
        of it is encoded."""
        exact, longest = self.batcher.records_supports, self.facts.max_model_len
        codec = self._codec.with_tools(call.tools)
        grammar = grammar_of(self._codec, self._tokenizer, call, exact=exact)
        with folded(codec, call.messages) as messages:
            if sum(len(message.content) for message in messages) > _SPARSE * longest:
                text = codec.template.render(messages) if isinstance(codec, TemplateCodec) else ""
                self._check_length(text or "".join(one.content for one in messages))
            return codec, codec.open(messages).token_ids, grammar

    def _check_length(self, text: str) -> None:
        """Raise CallRefused for a text that has surely more tokens than the model takes, counted
        piece by piece."""
        longest, count = self.facts.max_model_len, 0
        for start in range(0, len(text), _PIECE):
            piece = text[start : start + _PIECE]
            count += len(self._tokenizer.encode(piece, add_special_tokens=False))
            if count - _CUT * (1 + start // _PIECE) > longest:
                raise _too_long(context_overflow(count, longest))

    async def reward(self, key: str, session: str, value: float) -> None:
        """Raises CallRefused: nothing is trained here."""
        self.check(key)
        raise CallRefused("this server trains no model, so it takes no rewards", 404)

    async def sample(self, request: GenerationRequest, model: str = "") -> GenerationResult:
        """The engine's answer. Raises CallRefused."""
        try:
            result = await self.batcher.ask(request, model or self.facts.name)
        except (LookupError, OSError) as error:
            raise CallRefused(f"{model[:200]!r} is gone: {error}", 404) from None
        except ValueError as error:
            raise CallRefused(str(error)) from None
        if result.error is not None:
            reason = result.error.partition(": ")[2] or result.error
            raise _too_long(reason) if is_context_overflow(reason) else CallRefused(reason)
        return result


def new_seed() -> int:
    """A seed for a request without one."""
    return secrets.randbits(63)


def _too_long(reason: str) -> CallRefused:
    return CallRefused(reason, code="context_length_exceeded")
