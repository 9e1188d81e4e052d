"""A model of a training step's time, worked out for clusters that were not at hand.

    python experiments/step_time.py

Playing is limited by its slowest part: servers that sample, environments, or our threads, all of
which work at the same time. A synchronous step adds the weights and the learning; with
`max_staleness` of 1 or more, playing and learning take place at once. With an engine that has no
more places than sessions are open, the parts of playing add up instead (`in_turns`).

It prints a table of seconds; docs/distributed.md has some of them.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Work:
    """One step: `rollouts` of `steps` environment steps with `sampled` tokens each, learned from as
    rows of `row` tokens, with a model of `parameters` parameters.

    `passes` are the floating-point operations per parameter and token: 8 with gradient
    checkpointing (2 forward, 2 again, 4 backward), 6 for an adapter, whose base gets no gradient.
    `sent` are the bytes of a version of the weights.
    """

    parameters: float = 7.6e9
    rollouts: int = 512
    steps: int = 30
    sampled: int = 60
    row: int = 5000
    passes: int = 8
    sent: float = 15.2e9


@dataclass(frozen=True)
class Rates:
    """What parts do per second. `sampled`: tokens of one server GPU; `flops` of a learner GPU at
    its peak and `use` the share of it; `env_steps` of a core; `overhead`: CPU seconds of our thread
    per step; `write` and `read`: bytes per second of the weights' directory.

    Sources: LLaMA 7B on one H100 with TensorRT-LLM 0.5.0 (docs/source/performance.md of its
    repository; newer servers are faster); peak of an H100 SXM5
    (glennklockwood.com/garden/processors/h100); the share of Llama 3's training (arXiv 2407.21783,
    table 4); a Samsung PM9A3 (heise.de/-4720224); ALFWorld, measured (benchmarks/README.md); our
    thread, measured with an HTTP server.
    """

    sampled: float = 2230.0
    flops: float = 989.4e12
    use: float = 0.4
    env_steps: float = 711.0
    overhead: float = 0.5e-3
    write: float = 3.5e9
    read: float = 6.5e9


@dataclass(frozen=True)
class Cluster:
    """`servers` and `learners` are GPUs; with `shared`, both use the same ones, one after the
    other. `readers` are the machines whose servers read the weights; `cores` play environments."""

    name: str
    servers: int
    learners: int
    readers: int = 1
    cores: int = 16
    threads: int = 1
    shared: bool = False


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step's parts. `added`: the parts of playing wait for each other."""

    sampling: float
    environments: float
    threads: float
    weights: float
    learning: float
    added: bool = False

    @property
    def playing(self) -> float:
        """The slowest of what works at once, or the sum of what does not."""
        parts = (self.sampling, self.environments, self.threads)
        return sum(parts) if self.added else max(parts)

    @property
    def synchronous(self) -> float:
        """One after the other."""
        return self.playing + self.weights + self.learning

    @property
    def ahead(self) -> float:
        """With `max_staleness` of 1 or more."""
        return max(self.playing, self.learning) + self.weights

    @property
    def in_turns(self) -> "StepTime":
        """The same for an engine with a place for each open session and no more (the embedded
        ones): while a session's environment answers, its place is empty."""
        return replace(self, added=True)

    @property
    def learner_waits(self) -> float:
        """Share of a step ahead in which the learners have nothing to do."""
        return 1 - self.learning / self.ahead


def step_time(work: Work, rates: Rates, cluster: Cluster) -> StepTime:
    """The parts of a step."""
    steps = work.rollouts * work.steps
    operations = work.rollouts * work.row * work.passes * work.parameters
    return StepTime(
        sampling=steps * work.sampled / (rates.sampled * cluster.servers),
        environments=steps / (rates.env_steps * cluster.cores),
        threads=steps * rates.overhead / cluster.threads,
        weights=work.sent / rates.write + cluster.readers * work.sent / rates.read,
        learning=operations / (rates.flops * rates.use * cluster.learners),
    )


ADAPTER = Work(passes=6, sent=0.08e9)
CLUSTERS: tuple[tuple[Cluster, Work], ...] = (
    (Cluster("one GPU, an adapter", 1, 1, shared=True), ADAPTER),
    (Cluster("eight GPUs: 4 sample, 4 learn", 4, 4, cores=32), Work()),
    (Cluster("eight GPUs: 5 sample, 3 learn", 5, 3, cores=32), Work()),
    (Cluster("4 × 8 GPUs: 16 sample, 16 learn", 16, 16, readers=2, cores=128), Work()),
)


def rows() -> list[tuple[str, ...]]:
    """The table's rows: name, the parts in seconds, a step's seconds, and what waits."""
    lines = []
    for cluster, work in CLUSTERS:
        time = step_time(work, Rates(), cluster)
        parts = (time.sampling, time.environments, time.threads, time.weights, time.learning)
        ahead = ("not possible",) * 2
        if not cluster.shared:
            ahead = (_shown(time.ahead), f"{100 * time.learner_waits:.0f} %")
        lines.append((cluster.name, *map(_shown, parts), _shown(time.synchronous), *ahead))
    return lines


HEAD = (
    "",
    "sampling",
    "environments",
    "our thread",
    "weights",
    "learning",
    "synchronous",
    "ahead",
    "learners wait",
)


def _shown(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"


if __name__ == "__main__":
    for line in (HEAD, *rows()):
        print(f"{line[0]:<32}" + "".join(f"{cell:>14}" for cell in line[1:]))
