"""Tokens per second in multi-turn games: our engine, TRL's own path, and a floor without turns.

    python benchmarks/generation.py [--models tiny 0.5 1.5] [--turns 20 50] [--smollm2]
        [--continuous] [--device cuda] [--threads N]

The same games are played with the same model by (a) `agentsgym.rollout.run` with the embedded
engine, environment and scheduler included, (b) TRL's `_generate_single_turn` as a `rollout_func`
calls it, (c) as the floor, one `generate()` of as many tokens without any turns, plus one forward
pass over all observations, and on a GPU or with `--continuous` by (d) the continuous batching of
transformers, one manager for all turns, so that its prefix cache may keep them. The last line is
one JSON object; ratios are seconds of the other over seconds of ours, medians over runs that
alternate.
"""

import argparse
import copy
import itertools
from collections.abc import Callable
from typing import Any

import common
import torch
from common import NEW_TOKENS, OBSERVED_TOKENS, Played
from transformers import ContinuousBatchingConfig

from agentsgym.agents import DirectOutputAgent
from agentsgym.envs import EnvPool
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import run
from agentsgym.types import RolloutBatch, SamplingParams

LLAMAS = tuple(map(str, common.LLAMAS))


class Bench:
    """One model, one set of games, three or four ways to play them."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        sessions: int,
        group: int,
        turns: int,
        device: str,
        *,
        continuous: bool = False,
    ) -> None:
        self.model, self.tokenizer, self.device = model.to(device), tokenizer, device
        self.sessions, self.group, self.turns = sessions, group, turns
        self.games = common.make_games(tokenizer, sessions // group, turns)
        # Its attention is another's, and our engine replaces the model's own.
        self.continuous_model = copy.deepcopy(self.model) if continuous else None
        self.trl_clock: dict[int, float] = {}
        self.rollout_func = common.trl_rollout_func(self.games, self.trl_clock)
        self.trainer = common.trl_trainer(
            model,
            tokenizer,
            self.games,
            self.rollout_func,
            num_generations=group,
            per_device_train_batch_size=sessions,
            use_cpu=device == "cpu",
        )
        self.agent = DirectOutputAgent(
            EmbeddedEngine(model, tokenizer, capacity=sessions), SamplingParams(NEW_TOKENS)
        )
        self.envs = EnvPool(tokenizer)
        self.batch: RolloutBatch | None = None

    def ours(self) -> Played:
        rows = common.rows_of(self.games)
        env = self.envs.get(rows[0])
        env.clock.clear()
        self.agent.engine.reset()
        watch = common.Stopwatch(self.device)
        self.batch = run(rows, self.agent, self.group, envs=self.envs)
        seconds, cpu = watch.read()
        failed = [rollout.error for rollout in self.batch.rollouts if rollout.failed]
        if failed:
            raise SystemExit(failed[0])
        played = [(list(r.token_ids), list(r.agent_token_mask)) for r in self.batch.rows]
        return Played(seconds, played, cpu, _durations(watch.start, env.clock))

    def trl(self) -> Played:
        self.trl_clock.clear()
        watch = common.Stopwatch(self.device)
        output = self.rollout_func(self._prompts(), self.trainer)
        seconds, cpu = watch.read()
        self.model.eval()
        return Played(seconds, _rows(output), cpu, _durations(watch.start, self.trl_clock))

    def continuous(self) -> Played:
        """The loop of TRL's side, each turn sampled by a manager that is ready before it begins."""
        model = self.continuous_model
        assert model is not None
        longest = max(len(common.opening_ids(self.tokenizer, texts[0])) for texts in self.games)
        tokens = longest + (NEW_TOKENS + OBSERVED_TOKENS) * self.turns
        config = self.trainer.generation_config
        with model.continuous_batching_context_manager(
            config, continuous_batching_config=self._pages(tokens)
        ) as manager:
            sampler = _Sampler(manager, self.tokenizer)
            watch = common.Stopwatch(self.device)
            output = self.rollout_func(self._prompts(), sampler)
            seconds, cpu = watch.read()
        return Played(seconds, _rows(output), cpu)

    def _prompts(self) -> list[Any]:
        return [
            [{"role": "user", "content": texts[0]}]
            for texts in self.games
            for _ in range(self.group)
        ]

    def _pages(self, tokens: int) -> ContinuousBatchingConfig:
        """On a GPU its own choice, within half of the memory that is free; on a CPU, where its
        choice takes a hundred times as long, as many pages as the games have."""
        if self.device.startswith("cuda"):
            return ContinuousBatchingConfig(max_memory_percent=0.5)
        pages = ContinuousBatchingConfig(max_batch_tokens=1024)
        # The size's name until transformers 5.17 was block_size.
        size = getattr(pages, "page_size", None) or pages.block_size
        pages.num_blocks = self.sessions * (-(-tokens // size) + 1)
        return pages

    @torch.no_grad()
    def floor(self) -> Played:
        """As many tokens as the games have, with the settings of TRL's generation."""
        opening = [common.opening_ids(self.tokenizer, texts[0]) for texts in self.games]
        shortest = min(map(len, opening))
        prompts = [ids[-shortest:] for ids in opening for _ in range(self.group)]
        ids = torch.tensor(prompts, device=self.device)
        observed = torch.randint(
            5, 200, (self.sessions, common.OBSERVED_TOKENS * (self.turns - 1)), device=self.device
        )
        config = self.trainer.generation_config
        before, config.max_new_tokens = config.max_new_tokens, NEW_TOKENS * self.turns
        watch = common.Stopwatch(self.device)
        out = self.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=config
        )
        if self.turns > 1:
            self.model(input_ids=observed, use_cache=False, logits_to_keep=1)
        seconds, cpu = watch.read()
        config.max_new_tokens = before
        length = out.shape[1] - shortest
        mask = ([1] * NEW_TOKENS + [0] * common.OBSERVED_TOKENS) * self.turns
        mask = [0] * shortest + mask[: length + observed.shape[1]]
        row = [0] * len(mask)
        return Played(seconds, [(row, mask)] * self.sessions, cpu)

    def check(self) -> None:
        """Our log-probabilities are the model's own, by a plain full forward."""
        assert self.batch is not None
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 0.5
        for row in self.batch.rows[:: max(1, self.sessions // 4)]:
            ids = torch.tensor([row.token_ids.tolist()], device=self.device)
            with torch.no_grad():
                logps = self.model(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
            own = logps.gather(1, ids[0, 1:, None])[:, 0].cpu()
            mask = torch.tensor(row.agent_token_mask[1:]).bool()
            gap = float((own - torch.tensor(row.logprobs[1:]))[mask].abs().max())
            if not gap < tolerance:
                raise SystemExit(f"no ratio: our log-probabilities are off by {gap:.2g}")


class _Sampler:
    """What TRL's `rollout_func` calls, over a manager of continuous batching."""

    def __init__(self, manager: Any, tokenizer: Any) -> None:
        self.manager, self.processing_class = manager, tokenizer

    def _generate_single_turn(self, contexts: list[list[int]], *_: Any) -> tuple[Any, None]:
        names = self.manager.add_requests(contexts, max_new_tokens=NEW_TOKENS)
        ready: dict[str, list[int]] = {}
        while len(ready) < len(names):
            result = self.manager.get_result(timeout=1)
            if result is None and not self.manager.is_running():
                raise RuntimeError("continuous batching ended before its requests")
            if result is not None and result.error is not None:
                raise RuntimeError(f"a request failed: {result.error}")
            if result is not None and result.is_finished():
                ready[result.request_id] = result.generated_tokens
        return [ready[name] for name in names], None


def _rows(output: dict[str, Any]) -> list[tuple[list[int], list[int]]]:
    """Token ids and agent mask of each game, from what a `rollout_func` returns."""
    return [
        (prompt + completion, [0] * len(prompt) + mask)
        for prompt, completion, mask in zip(
            output["prompt_ids"], output["completion_ids"], output["env_mask"], strict=True
        )
    ]


def _durations(start: float, clock: dict[int, float]) -> list[float]:
    times = [start, *(clock[k] for k in sorted(clock))]
    return [b - a for a, b in itertools.pairwise(times)]


def _add_continuous(bench: Bench, sides: dict[str, Callable[[], Played]]) -> dict[str, str]:
    """Continuous batching as a side, if it was asked for and works here; otherwise why not."""
    if bench.continuous_model is None:
        return {}
    try:
        bench.continuous()
    except Exception as error:  # it is young: many kinds on many devices
        reason = f"{type(error).__name__}: {error}"[:300]
        print(f"  continuous batching does not work here: {reason}", flush=True)
        return {"continuous_failed": reason}
    sides["continuous"] = bench.continuous
    return {}


def compare(name: str, bench: Bench, repeats: int) -> dict[str, Any]:
    """Play all sides in turn and give the ratios."""
    print(f"{name}: {bench.sessions} sessions of {bench.turns} turns", flush=True)
    sides: dict[str, Callable[[], Played]] = {
        "ours": bench.ours,
        "trl": bench.trl,
        "floor": bench.floor,
    }
    missing = _add_continuous(bench, sides)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    cpu: dict[str, list[float]] = {side: [] for side in sides}
    growth: dict[str, float] = {}
    played: dict[str, Played] = {}
    bench.ours()  # the first run allocates
    bench.check()
    if bench.device.startswith("cuda"):  # so do the others', and load their kernels
        played |= {side: play() for side, play in sides.items()}
    for _ in range(repeats):
        for side, play in sides.items():
            played[side] = play()
            seconds[side].append(played[side].seconds)
            cpu[side].append(played[side].cpu_seconds)
            common.describe(side, played[side], bench.model.dtype)
    ours = played["ours"]
    for side in sides.keys() - {"ours", "floor"}:
        theirs = played[side]
        common.demand_equal(ours.work, theirs.work, "turns, sampled and observed tokens")
        common.demand_equal(
            tuple(_seen(ours)), tuple(_seen(theirs)), "prompts, observations and their places"
        )
    common.demand_equal((ours.sampled,), (played["floor"].sampled,), "sampled tokens")
    medians = {side: common.median(values) for side, values in seconds.items()}
    own = {side: common.median(values) for side, values in cpu.items()}
    for side in ("ours", "trl"):
        growth[side] = _growth(played[side].marks)
        print(f"  {side}: ms per turn, first to last: {_in_ms(played[side].marks)}")
        print(f"  {side}: last fifth over second fifth of the turns: {growth[side]:.2f}")
    others = sides.keys() - {"ours"}
    ratios = {f"ours_over_{side}": medians[side] / medians["ours"] for side in others}
    ratios |= {f"cpu_ours_over_{side}": own[side] / own["ours"] for side in others}
    return {
        **missing,
        **{name: round(ratio, 2) for name, ratio in sorted(ratios.items(), reverse=True)},
        "ours_tokens_per_second": round(ours.sampled / medians["ours"]),
        "ours_growth": round(growth["ours"], 2),
        "trl_growth": round(growth["trl"], 2),
    }


def _seen(played: Played) -> list[list[int]]:
    """What was observed, with -1 where a token was sampled."""
    return [
        [-1 if own else token for token, own in zip(ids, mask, strict=True)]
        for ids, mask in played.rows
    ]


def _growth(marks: list[float]) -> float:
    fifth = max(1, len(marks) // 5)
    return sum(marks[-fifth:]) / sum(marks[fifth : 2 * fifth] or marks[:fifth])


def _in_ms(marks: list[float]) -> str:
    step = max(1, len(marks) // 10)
    return " ".join(f"{1000 * value:.0f}" for value in marks[::step])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_common_arguments(parser)
    parser.add_argument("--models", nargs="+", default=["tiny"], choices=("tiny", *LLAMAS))
    parser.add_argument("--turns", type=int, nargs="+", default=[20, 50])
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument(
        "--dtype", default=None, help="float32 (CPU) or bfloat16 (CUDA) if left out"
    )
    parser.add_argument("--smollm2", action="store_true", help="also SmolLM2-135M, 8 sessions")
    parser.add_argument(
        "--continuous",
        action="store_true",
        help="also transformers' continuous batching, which a GPU always gets",
    )
    args = parser.parse_args()
    common.set_up(args)
    args.continuous |= args.device.startswith("cuda")
    if args.quick:
        args.turns, args.sessions, args.repeats = [3], 8, 1
    default = "bfloat16" if args.device.startswith("cuda") else "float32"
    dtype = getattr(torch, args.dtype or default)
    result: dict[str, Any] = {"device": common.device_name(args.device)}
    print(f"{result['device']}; torch {torch.__version__}")
    for name in args.models:
        if name == "tiny":
            model, tokenizer = common.tiny()
        else:
            model, tokenizer = common.random_llama(float(name), args.device, dtype)
        for turns in args.turns:
            result |= _of_turns(name, model, tokenizer, turns, args)
    if args.smollm2:
        model, tokenizer = common.smollm2(dtype)
        bench = Bench(model, tokenizer, 8, 2, args.turns[0], args.device)
        values = compare("SmolLM2-135M", bench, 1)
        result |= {f"{key}_smollm2": value for key, value in values.items()}
    common.finish(result)


def _of_turns(
    name: str, model: Any, tokenizer: Any, turns: int, args: argparse.Namespace
) -> dict[str, Any]:
    """The figures of one model and number of turns, by the names that they have in the result."""
    common.release()  # the one before
    group = min(8, args.sessions)
    bench = Bench(
        model, tokenizer, args.sessions, group, turns, args.device, continuous=args.continuous
    )
    if name != "tiny":
        values = compare(f"a Llama of {name} B, {turns} turns", bench, args.repeats)
        return {f"{key}_{turns}_turns_{name}b": value for key, value in values.items()}
    values = compare(f"tiny, {turns} turns", bench, args.repeats)
    suffix = "" if turns == args.turns[0] else f"_{turns}_turns"
    first = {f"ours_over_trl_tiny{suffix}": values.pop("ours_over_trl")}
    return first | {f"{key}{suffix}": value for key, value in values.items()}


if __name__ == "__main__":
    main()
