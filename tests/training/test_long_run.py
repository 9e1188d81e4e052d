"""Nothing grows while a run goes on: no memory, no objects, no open files."""

import gc
import os
import tracemalloc
from pathlib import Path

import pytest
from transformers import TrainerCallback

from helpers import DigitEnv

PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch(TrainerCallback):
    """Notes at some steps what the process holds: traced and resident bytes, objects, files."""

    def __init__(self, steps):
        self._steps = steps
        self.held = []

    def on_step_end(self, args, state, control, **_):
        if state.global_step in self._steps:
            gc.collect()
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
            traced, files = tracemalloc.get_traced_memory()[0], len(os.listdir("/proc/self/fd"))
            self.held.append((traced, resident, len(gc.get_objects()), files))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_nothing_grows_over_300_steps(make_trainer, chat_tokenizer):
    env = DigitEnv(chat_tokenizer)
    trainer = make_trainer(
        env, eval_dataset=env.get_eval_dataset(), max_steps=300, learning_rate=1e-4,
        logging_steps=10, eval_strategy="steps", eval_steps=50, save_strategy="steps",
        save_steps=50, save_total_limit=1, sink=lambda rollouts, info: None,
    )  # fmt: skip
    watch = Watch((100, 200, 300))
    trainer.add_callback(watch)
    tracemalloc.start()
    try:
        trainer.train()
    finally:
        tracemalloc.stop()
    for before, after in zip(watch.held, watch.held[1:], strict=False):
        traced, resident, objects, files = (b - a for a, b in zip(before, after, strict=True))
        # The log itself grows, by an entry of some thirty numbers every ten steps.
        assert traced < 200_000
        assert resident < 30_000_000
        assert objects < 300
        assert files <= 0
