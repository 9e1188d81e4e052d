"""What constrained actions cost: turns sampled among 500 legal actions and an update on them.

`python benchmarks/constrained.py` prints CPU seconds beside those of free turns of as many tokens,
and the largest difference between the sampler's and the trainer's log-probabilities.
"""

import argparse
import random
import statistics
import time
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

from agentsgym.generation import EmbeddedEngine
from agentsgym.training.loss.batch import TrainRow
from agentsgym.training.loss.logprobs import Scorer
from agentsgym.training.ranks import Ranks
from agentsgym.training.trl_base import add_head
from agentsgym.types import GenerationRequest, SamplingParams, StepSpan
from agentsgym.types.choices import Choices
from agentsgym.types.supports import joined_supports

LENGTH, OBSERVED, LEGAL = 6, 30, 500
TOKENIZER: Any = SimpleNamespace(eos_token_id=None, decode=lambda ids, **_: "")


def actions(draw: random.Random, vocabulary: int) -> list[tuple[int, ...]]:
    """Legal actions: one of 10 verbs, one of 50 things, and ids that follow from these."""
    words = draw.sample(range(1, vocabulary), 64)
    return [(words[v], words[10 + t], *words[60:63], 0) for v in range(10) for t in range(50)]


def play(engine: EmbeddedEngine, legal: Any, sessions: int, turns: int) -> list[TrainRow]:
    """Rows of turns; each reads an observation and answers with `LENGTH` tokens."""
    draw = random.Random(0)
    size = engine.model.config.vocab_size
    rows: list[list[int]] = [[] for _ in range(sessions)]
    logprobs: list[list[float]] = [[] for _ in range(sessions)]
    supports: list[list[Any]] = [[] for _ in range(sessions)]
    spans: list[list[StepSpan]] = [[] for _ in range(sessions)]
    params = SamplingParams(LENGTH)
    for turn in range(turns):
        for k, row in enumerate(rows):
            row += [draw.randrange(size) for _ in range(OBSERVED)]
            logprobs[k] += [0.0] * OBSERVED
        engine.submit(
            [
                GenerationRequest(str(k), row, params, k, turn * LENGTH, choices=legal)
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
    width, layers, sessions, turns, repeats = (32, 2, 2, 2, 1) if quick else (256, 6, 16, 5, 3)
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
    engine = EmbeddedEngine(model, TOKENIZER, stop_token_ids=[], capacity=sessions)
    add_head(model, temperature=1.0)
    accelerator = Accelerator(cpu=True)
    args: Any = SimpleNamespace(
        max_tokens_per_forward=4096, gradient_checkpointing=False, temperature=1.0
    )
    scorer = Scorer(accelerator, Ranks(accelerator), 0, args)
    legal = Choices.of(actions(random.Random(1), config.vocab_size))
    seconds: dict[str, list[float]] = {}
    gap = 0.0
    for _ in range(1 + repeats):  # the first one warms up
        for name, choices in (("free", None), ("constrained", legal)):
            begin = time.process_time()
            rows = play(engine, choices, sessions, turns)
            if {len(row.token_ids) for row in rows} != {turns * (OBSERVED + LENGTH)}:
                raise SystemExit(f"the {name} turns have not {LENGTH} tokens each")
            played = time.process_time()
            gap = max(gap, update(scorer, model, rows))
            ended = time.process_time()
            for what, took in (("play", played - begin), ("update", ended - played)):
                seconds.setdefault(f"{name}_{what}", []).append(took)
    result = {name: statistics.median(own[1:]) for name, own in seconds.items()}
    whole = {n: result[f"{n}_play"] + result[f"{n}_update"] for n in ("free", "constrained")}
    result |= {
        "legal": LEGAL,
        "tokens": sessions * turns * LENGTH,
        "cpu_constrained_over_free_play": result["constrained_play"] / result["free_play"],
        "cpu_constrained_over_free_update": result["constrained_update"] / result["free_update"],
        "cpu_constrained_over_free": whole["constrained"] / whole["free"],
        "largest_logp_gap": gap,
    }
    common.finish({name: round(value, 6) for name, value in result.items()})


if __name__ == "__main__":
    main()
