"""The viewer's page in Chromium: its size, the time to the first view, to switch the coloring, and
what storing the trainer's numbers costs. One line of JSON.

    python benchmarks/viewer.py RUN [--rounds N]

RUN is a finished run of the quickstart. Measured are a page of 1,000 of its rollouts; a page of
1,000 rollouts of 1,000 tokens each with random tokens, texts and log-probabilities, which hardly
compress; and a served run of 100,000 rollouts, whose shards are copies of RUN's. Times are medians.
`first_view` is the time from the request to the page being ready, the browser's own clock; `switch`
that from choosing another coloring to the layout and the next frame. `stored_share` is the share of
the process's CPU time in training that choosing, taking and writing token records takes, over 10
steps of the quickstart.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np

from agentsgym.report.viewer.file import write_page
from agentsgym.report.viewer.server import Library, PageServer
from agentsgym.report.viewer.source import Source
from agentsgym.runs.files import RolloutWriter, TokenRecordWriter
from agentsgym.types import Episode, Rollout, Row, Step, StepSpan
from agentsgym.types.records import StepNumbers, TokenRecord
from browser import chromium, go, open_page, wait

GROUPS, SIZE, STEPS, TOKENS = 125, 8, 10, 100
SHARDS = 400
SWITCH = """
    const done = arguments[arguments.length - 1];
    const field = document.querySelector('[name=coloring]');
    const other = [...field.options].filter((o) => !o.disabled && o.value !== field.value);
    const started = performance.now();
    field.value = other[Math.floor(Math.random() * other.length)].value;
    field.dispatchEvent(new Event('change'));
    document.body.getBoundingClientRect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - started)));
"""


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inside", type=Path, help="train here and print the stored share")
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(stored_share(args.inside)))
        return
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        root = Path(folder)
        found = {
            "quickstart": page_of(driver, args.run, root / "quickstart.html", args.rounds),
            "long": page_of(
                driver, long_run(root / "long", args.run), root / "l.html", args.rounds
            ),
            "served_100000": served(driver, many(root / "many", args.run), args.rounds),
        }
        inside = [sys.executable, __file__, str(args.run), "--inside", str(root / "train")]
        told = subprocess.run(inside, check=True, capture_output=True, text=True).stdout
    print(json.dumps(found | json.loads(told.splitlines()[-1])))


def page_of(driver, run: Path, path: Path, rounds: int) -> dict[str, float]:
    """The page of 1,000 rollouts."""
    started = time.perf_counter()
    written = write_page(path, [Source(run)])
    seconds = time.perf_counter() - started
    views = [first_view(driver, path) for _ in range(rounds)]
    switches = [switch(driver, path) for _ in range(rounds)]
    return {
        "rollouts": written.rollouts,
        "megabytes": round(written.size / 1e6, 2),
        "write_seconds": round(seconds, 1),
        "first_view_seconds": round(statistics.median(views), 3),
        "switch_ms": round(statistics.median(switches), 1),
    }


def first_view(driver, address) -> float:
    """Seconds until the page is ready."""
    open_page(driver, address)
    return driver.execute_script("return performance.getEntriesByName('ready')[0].startTime") / 1e3


def switch(driver, path: Path) -> float:
    """Milliseconds to switch the coloring of the rollout with the most tokens."""
    open_page(driver, path, "#/rollouts")
    driver.execute_script("document.querySelector('button.c-tokens').click()")
    driver.execute_script("document.querySelector('.virtual-row').click()")
    place = wait(driver, "return location.hash.startsWith('#/rollout/') && location.hash")
    go(driver, f"{place}/tokens")
    wait(driver, "return document.querySelectorAll('.t.a').length > 0")
    time.sleep(0.2)
    return driver.execute_async_script(SWITCH)


def served(driver, run: Path, rounds: int) -> dict[str, float]:
    """A large run from its server."""
    views = []
    for _ in range(rounds):
        with PageServer(Library([Source(run)])) as server:  # each time one that has read nothing
            threading.Thread(target=server.serve_forever, daemon=True).start()
            views.append(first_view(driver, server.address))
            server.shutdown()
    return {"sets": SHARDS, "first_view_seconds": round(statistics.median(views), 3)}


def many(root: Path, run: Path) -> Path:
    """A run with 400 generations of 256 rollouts."""
    (root / "rollouts").mkdir(parents=True)
    for name in ("config.yaml", "summary.json"):
        shutil.copy(run / name, root / name)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    with (root / "metrics.jsonl").open("w") as file:
        for step in range(SHARDS):
            line = json.loads(lines[step % len(lines)]) | {"step": step + 1}
            file.write(json.dumps(line) + "\n")
    shards = sorted((run / "rollouts").glob("train-*.jsonl.gz"))
    for step in range(SHARDS):
        shutil.copy(shards[step % len(shards)], root / "rollouts" / f"train-{step:06d}.jsonl.gz")
    return root


def long_run(root: Path, run: Path) -> Path:
    """A run of 1,000 rollouts with 10 actions of 50 tokens, each after 50 tokens of observation."""
    rng = np.random.default_rng(0)
    writer = RolloutWriter(root)
    shutil.copytree(run / "model", root / "model")
    for step in range(5):
        rollouts = [
            long_rollout(rng, group, index) for group in range(GROUPS // 5) for index in range(SIZE)
        ]
        advantages = [of_steps(rng) for _ in rollouts]
        writer(rollouts, {"phase": "train", "step": step, "advantages": advantages})
        TokenRecordWriter(root)([record(rng, r) for r in rollouts[::25]], {"step": step})
    return root


def long_rollout(rng, group: int, index: int) -> Rollout:
    """Random words, tokens and numbers."""
    half = TOKENS // 2
    length = STEPS * TOKENS
    mask = [int(place % TOKENS >= half) for place in range(length)]
    steps = [
        Step(n, words(rng, half), words(rng, half), float(rng.normal()), n + 1 == STEPS)
        for n in range(STEPS)
    ]
    row = Row(
        f"{group}-{index}",
        group,
        index,
        tuple(rng.integers(4, 800, length).tolist()),
        tuple(mask),
        tuple(np.where(mask, -rng.exponential(size=length), 0.0).tolist()),
        tuple(of_steps(rng)),
        tuple(StepSpan(0, n, n * TOKENS + half, (n + 1) * TOKENS) for n in range(STEPS)),
    )
    episode = Episode(0, tuple(steps), (), sum(s.reward for s in steps), 1.0, "done")
    task = {"solution": words(rng, 1), "seed": group}
    return Rollout(f"{group}-{index}", group, index, "Talk", {}, task, (episode,), (row,))


def of_steps(rng) -> list[float]:
    """A number per action on each of its tokens, as advantages and spread rewards are."""
    half = TOKENS // 2
    return [x for value in rng.normal(size=STEPS).tolist() for x in [0.0] * half + [value] * half]


def words(rng, count: int) -> str:
    """Words of random letters."""
    letters = rng.integers(97, 123, size=(count, 5), dtype=np.uint8)
    return " ".join(bytes(word).decode() for word in letters)


def record(rng, rollout: Rollout) -> TokenRecord:
    """Random numbers for each step."""
    found = {}
    for span in rollout.rows[0].spans:
        values = (tuple(rng.normal(size=span.length).tolist()) for _ in range(3))
        found[span.key] = StepNumbers(*values)
    return TokenRecord(rollout.session_id, found)


def stored_share(root: Path) -> dict[str, float]:
    """The share of CPU time that token records take."""
    import agentsgym.runs.train as runs
    from agentsgym.runs.config_sources import load_config
    from agentsgym.training.token_sample import TokenRecordsCallback, TokenSample

    spent = {"stored": 0.0, "training": 0.0}
    timed(TokenSample, "choose", spent, "stored")
    timed(TokenSample, "take", spent, "stored")
    timed(TokenRecordsCallback, "on_step_end", spent, "stored")
    timed(runs, "train_until_stopped", spent, "training")
    wanted = {"threads": 1, "train.max_steps": 10, "eval.episodes": 16, "output_dir": str(root)}
    runs.train_run(load_config("quickstart", wanted))
    share = spent["stored"] / spent["training"]
    return {"stored_share": round(share, 5), "training_cpu_seconds": round(spent["training"], 1)}


def timed(owner, name: str, spent: dict[str, float], key: str) -> None:
    """Count the CPU time of a method."""
    setattr(owner, name, clocked(getattr(owner, name), spent, key))


def clocked(function, spent: dict[str, float], key: str):
    """The function, with its CPU time counted."""

    def called(*args, **options):
        started = time.process_time()
        try:
            return function(*args, **options)
        finally:
            spent[key] += time.process_time() - started

    return called


if __name__ == "__main__":
    main()
