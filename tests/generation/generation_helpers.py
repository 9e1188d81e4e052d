"""Tiny real models, a tiny real tokenizer, and what a plain full forward says."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import transformers

from agentsgym.generation.embedded import kv_cache
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.generation.http import Retries
from agentsgym.types import GenerationRequest, GenerationResult, SamplingParams
from agentsgym.types.supports import mask_of
from family_models import TINY_SHAPE

QUICK = Retries(attempts=6, first_delay=0.05, longest_delay=0.3)
VOCABULARY = TINY_SHAPE["vocab_size"]
END = 0

_CONFIGS = {
    "llama": transformers.LlamaConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "gemma": transformers.GemmaConfig,
    "mistral": transformers.MistralConfig,
}


def build_tokenizer() -> Any:
    """One token per ASCII character, without merges; id 0 ends a turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = ["</s>", "<pad>", *(chr(c) for c in range(33, 126)), "Ġ"]
    core = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="</s>", pad_token="<pad>"
    )


def build_model(kind: str = "llama", **changes: Any) -> Any:
    """A random causal language model; wide weights, so that its distributions are not flat."""
    torch.manual_seed(0)
    config = _CONFIGS[kind](**{**TINY_SHAPE, **changes})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@torch.no_grad()
def plain_logprobs(model: Any, context: Iterable[int], ids: Iterable[int], temperature: float = 1):
    """Log-probabilities [len(ids), vocab] of a full forward at each position of `ids`."""
    context, ids = list(context), list(ids)
    logits = model(input_ids=torch.tensor([context + ids]), use_cache=False).logits[0].float()
    return (logits[len(context) - 1 : -1] / temperature).log_softmax(-1)


def assert_exact(
    model: Any,
    context: Iterable[int],
    result: GenerationResult,
    *,
    temperature: float = 1.0,
    tolerance: float = 1e-4,
) -> None:
    """The result's logprobs (and, if greedy, its ids) are those of a plain full forward, among the
    ids that its supports name."""
    assert result.error is None, result.error
    ids = torch.tensor(result.token_ids)
    table = plain_logprobs(model, context, result.token_ids, temperature or 1.0)
    if temperature == 0:
        assert table.argmax(-1).tolist() == ids.tolist()
    expected = table.gather(1, ids[:, None])[:, 0]
    for place, support in result.supports:
        expected[place] -= table[place, mask_of(support, table.shape[1])].logsumexp(0)
    torch.testing.assert_close(torch.tensor(result.logprobs), expected, atol=tolerance, rtol=0)


def play(
    engine: EmbeddedEngine,
    sessions: int,
    turns: int,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    rewrite_at: int | None = None,
    longest: int = 9,
    prompt: Iterable[int] = (),
    check: Callable[[list[int], GenerationResult], None] = lambda context, result: None,
) -> dict[str, list[tuple[int, ...]]]:
    """Play ragged sessions: each submits its next turn as soon as its last one is done.

    What a session is asked and told depends on `seed`, itself and its turn, not on the others.
    `rewrite_at` names a turn before which the history is rewritten from its sixth token on;
    `prompt` is what all histories begin with.
    Returns the sampled ids of each session's turns.
    """
    dice = {f"s{i}": random.Random(f"{seed}/{i}") for i in range(sessions)}
    history = {name: [*prompt, *_tokens(rng, rng.randint(1, 20))] for name, rng in dice.items()}
    played: dict[str, list[tuple[int, ...]]] = {name: [] for name in dice}
    counts = dict.fromkeys(dice, 0)

    def request(name: str) -> GenerationRequest:
        rng = dice[name]
        params = SamplingParams(max_tokens=rng.randint(1, longest), temperature=temperature)
        before = counts[name]
        return GenerationRequest(
            name, history[name], params, seed=int(name[1:]), sampled_before=before
        )

    engine.submit([request(name) for name in dice])
    while results := engine.poll():
        for result in results:
            name, rng = result.session_id, dice[result.session_id]
            check(history[name], result)
            played[name].append(result.token_ids)
            counts[name] += len(result.token_ids)
            history[name] = (
                history[name] + list(result.token_ids) + _tokens(rng, rng.randint(0, 12))
            )
            if len(played[name]) == rewrite_at:
                history[name] = history[name][:5] + _tokens(rng, 4)
            if len(played[name]) < turns:
                engine.submit([request(name)])
    return played


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(2, VOCABULARY) for _ in range(count)]


def requests(count: int, tokens: int = 6, **params: Any) -> list[GenerationRequest]:
    params = {"max_tokens": tokens} | params
    return [
        GenerationRequest(f"s{i}", [10 + i, 20, 30], SamplingParams(**params), seed=i)
        for i in range(count)
    ]


def drain(engine: Any) -> dict[str, GenerationResult]:
    by_session: dict[str, GenerationResult] = {}
    while results := engine.poll():
        by_session |= {result.session_id: result for result in results}
    return by_session


def ask(engine: Any, batch: list[GenerationRequest]) -> dict[str, GenerationResult]:
    engine.submit(batch)
    return drain(engine)


def paged(engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch) -> EmbeddedEngine:
    """The engine with rows of blocks, as on a GPU; one block in sixteen is spare."""
    monkeypatch.setattr(kv_cache, "_STEP", 0)
    lay_out = engine._caches._lay_out
    monkeypatch.setattr(engine._caches, "_lay_out", lambda *, paged: lay_out(paged=True))
    return engine
