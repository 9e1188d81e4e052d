"""What constrained actions cost: turns sampled among 500 legal actions, or by the schema of a tool,
and an update on them.

`python benchmarks/constrained.py` prints CPU seconds beside those of free turns of as many tokens,
and the largest difference between the sampler's and the trainer's log-probabilities.
"""

import argparse
import json
import random
import time
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
import torch
from accelerate import Accelerator
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentsgym.generation import EmbeddedEngine
from agentsgym.tokens.grammars import Grammar
from agentsgym.training.loss.batch import TrainRow
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.ranks import Ranks
from agentsgym.training.trl_base import add_head
from agentsgym.types import GenerationRequest, SamplingParams, StepSpan
from agentsgym.types.choices import Choices
from agentsgym.types.supports import joined_supports

OBSERVED, LEGAL = 30, 500
SIZES = {"constrained": (6, 5), "schema": (24, 2)}
"""Tokens of a turn, and turns. What the schema demands is longer, and cut."""
TOOL = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer"},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}


def tokenizer_of(size: int) -> Any:
    """A tokenizer of bytes and of so many words at random; the id 0 ends a turn."""
    draw, letters = random.Random(2), pre_tokenizers.ByteLevel.alphabet()
    words = dict.fromkeys(["</s>", *sorted(letters)])
    parts, merges = [w for w in words if w.isascii() and w.isalpha()], []
    while len(words) < size:
        pair = draw.choice(parts), draw.choice(parts)
        if len(word := "".join(pair)) < 9 and word not in words:
            words[word] = None
            parts.append(word)
            merges.append(pair)
    core = Tokenizer(models.BPE({word: k for k, word in enumerate(words)}, merges))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="</s>")


def form() -> Grammar:
    """The arguments of a tool, and the end of the turn."""
    spacing = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    arguments = {"name": "arguments", "json_schema": TOOL | {"x-guidance": spacing}}
    start = {"lark_grammar": "start: @arguments <[0]>"}
    return Grammar(json.dumps({"grammars": [start, arguments]}))


def actions(draw: random.Random, vocabulary: int) -> list[tuple[int, ...]]:
    """Legal actions: one of 10 verbs, one of 50 things, and ids that follow from these."""
    words = draw.sample(range(1, vocabulary), 64)
    return [(words[v], words[10 + t], *words[60:63], 0) for v in range(10) for t in range(50)]


def play(
    engine: EmbeddedEngine, choices: Any, sessions: int, turns: int, length: int
) -> list[TrainRow]:
    """Rows of turns; each reads an observation and answers with `length` tokens."""
    draw = random.Random(0)
    size = engine.model.config.vocab_size
    rows: list[list[int]] = [[] for _ in range(sessions)]
    logprobs: list[list[float]] = [[] for _ in range(sessions)]
    supports: list[list[Any]] = [[] for _ in range(sessions)]
    spans: list[list[StepSpan]] = [[] for _ in range(sessions)]
    params = SamplingParams(length)
    for turn in range(turns):
        for k, row in enumerate(rows):
            row += [draw.randrange(size) for _ in range(OBSERVED)]
            logprobs[k] += [0.0] * OBSERVED
        engine.submit(
            [
                GenerationRequest(str(k), row, params, k, turn * length, choices=choices)
                for k, row in enumerate(rows)
            ]
        )
        left = sessions
        while left:
            for result in engine.poll():
                left -= 1
                k, ids = int(result.session_id), result.token_ids or ()
                start = len(rows[k])
                spans[k].append(StepSpan(0, turn, start, start + len(ids)))
                supports[k].append(result.supports.between(0, len(ids), start))
                rows[k] += ids
                logprobs[k] += result.logprobs or ()
    engine.release([str(k) for k in range(sessions)])
    return [
        TrainRow(
            np.array(row, np.int32),
            np.array(logprobs[k], np.float32),
            np.zeros(len(row)),
            tuple(spans[k]),
            supports=joined_supports(supports[k]),
        )
        for k, row in enumerate(rows)
    ]


def update(scorer: Scorer, model: Any, rows: list[TrainRow]) -> float:
    """A forward and a backward pass over the rows; the largest difference to the sampler's
    log-probabilities."""
    gap = 0.0
    model.zero_grad()
    for layout in scorer.layouts(rows, model):
        with scorer.reading(model, layout):
            scores = scorer.forward(model, layout)
            scores.logps.sum().backward()
        gap = max(gap, float((scores.logps.detach() - scores.chunk.sampler_logps).abs().max()))
    return gap


def main() -> None:
    """Alternate free and constrained turns, and print the medians as one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    common.add_common_arguments(parser)
    given = parser.parse_args()
    common.set_up(given)
    quick = given.quick
    torch.manual_seed(0)
    width, layers, sessions, repeats = (32, 2, 2, 1) if quick else (256, 6, 8, 5)
    config = LlamaConfig(
        vocab_size=512 if quick else 49_152,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    tokenizer = tokenizer_of(config.vocab_size)
    engine = EmbeddedEngine(model, tokenizer, stop_token_ids=[], capacity=sessions)
    add_head(model, temperature=1.0)
    accelerator = Accelerator(cpu=True)
    args: Any = SimpleNamespace(
        max_tokens_per_forward=4096, gradient_checkpointing=False, temperature=1.0
    )
    scorer = Scorer(accelerator, Ranks(accelerator), 0, args)
    held = {
        "constrained": Choices.of(actions(random.Random(1), config.vocab_size)),
        "schema": form(),
    }
    result: dict[str, float] = {"legal": LEGAL, "rounds": repeats}
    gap = 0.0
    for kind, choices in held.items():
        (length, turns), seconds = SIZES[kind], dict[str, list[tuple[float, float]]]()
        for _ in range(1 + repeats):  # the first one warms up
            for name, given in (("free", None), (kind, choices)):
                begin = time.process_time()
                rows = play(engine, given, sessions, turns, length)
                if {len(row.token_ids) for row in rows} != {turns * (OBSERVED + length)}:
                    raise SystemExit(f"the {name} turns have not {length} tokens each")
                played = time.process_time()
                gap = max(gap, update(scorer, model, rows))
                seconds.setdefault(name, []).append((played - begin, time.process_time() - played))
        free, own = (np.median(seconds[name][1:], 0) for name in ("free", kind))
        result[f"{kind}_tokens"] = sessions * turns * length
        result |= {f"{kind}_{what}": t for what, t in zip(("play", "update"), own, strict=True)}
        result[f"cpu_{kind}_over_free_play"], result[f"cpu_{kind}_over_free_update"] = own / free
        result[f"cpu_{kind}_over_free"] = own.sum() / free.sum()
    result["largest_logp_gap"] = gap
    common.finish({name: round(float(value), 6) for name, value in result.items()})


if __name__ == "__main__":
    main()
