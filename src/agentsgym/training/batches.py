"""Which rollouts a training step gets: those of its rows, played now, or those of its generation,
played ahead."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentsgym.training.collect import RolloutCollector
from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.datasets import tasks_per_generation
from agentsgym.training.ranks import Ranks
from agentsgym.training.staleness import AheadPlayer, age, drop_stale
from agentsgym.training.tasks import GenerationReader, TaskSampler, TaskStream
from agentsgym.types import Rollout, RolloutRequest


class GenerationBatches:
    """The requests and rollouts of each generation. All ranks must call its methods.

    `sampler` orders the tasks of a training set that is no stream; `push_weights(step)` lets the
    engine sample from the current weights.
    """

    def __init__(
        self,
        args: GRPOEnvConfig,
        dataset: Any,
        collector: RolloutCollector,
        ranks: Ranks,
        sampler: Callable[[Any], TaskSampler],
        push_weights: Callable[[int], None],
    ) -> None:
        self._args = args
        self._dataset = dataset
        self._collector = collector
        self._ranks = ranks
        self._sampler = sampler
        self._push_weights = push_weights
        self._player: AheadPlayer | None = None
        streamed = isinstance(dataset, TaskStream)
        self._stream = GenerationReader(dataset) if streamed else None

    def begin(self) -> None:
        """Let the data loader leave a stream to the generations that are drawn by number."""
        if self._stream is not None:
            self._dataset.by_number = self._args.max_staleness > 0

    def end(self) -> None:
        """End the playing."""
        self._collector.close_source()
        self._player = None

    def next(
        self, rows: Sequence[Mapping[str, Any]], step: int, max_steps: int
    ) -> tuple[list[RolloutRequest], list[Rollout]]:
        """The requests and rollouts of the generation after optimizer step `step`; `rows` are those
        of this rank, which are read where nothing is played ahead."""
        if self._args.max_staleness:
            return self._next_ahead(step, max_steps)
        requests = self._collector.train_requests(rows, step)
        return requests, self.play(requests, step)

    def play(self, requests: Sequence[RolloutRequest], step: int) -> list[Rollout]:
        """Training rollouts of these requests, played now with the current weights."""
        self._push_weights(step)
        return self._ranks.together(lambda: self._collector.train(requests))

    def figures(self, rollouts: Sequence[Rollout], step: int) -> dict[str, float]:
        """How the learner and the sampler waited for each other, means over ranks, and how old the
        rollouts are. Empty where nothing can be older than the policy."""
        values: dict[str, float] = {}
        if self._player is not None:
            every = self._ranks.gather([self._player.figures])
            values = {name: sum(of[name] for of in every) / len(every) for name in every[0]}
        if self._collector.engine.can_generate_ahead:
            updates = self._args.updates_per_generation
            ages = self._ranks.gather([age(rollout, step, updates) for rollout in rollouts])
            values |= {"staleness": sum(ages) / len(ages), "staleness/max": max(ages)}
        return values

    def _next_ahead(self, step: int, max_steps: int) -> tuple[list[RolloutRequest], list[Rollout]]:
        updates, most = self._args.updates_per_generation, self._args.max_staleness
        generation, last = step // updates, (max_steps - 1) // updates
        player = self._ranks.together(lambda: self._player_from(generation, last))
        self._push_weights(step)
        requests, rollouts = self._ranks.together(lambda: player.batch(generation))
        return requests, drop_stale(rollouts, step, updates, most)

    def _player_from(self, generation: int, last: int) -> AheadPlayer:
        """The player of a training that begins or continues with this generation."""
        if self._player is None:
            self._player = AheadPlayer(
                self._collector.source or self._collector.open_source(),
                self._requests_of,
                first=generation,
                last=last,
                ahead=self._args.max_staleness,
            )
        return self._player

    def _requests_of(self, generation: int) -> list[RolloutRequest]:
        """This rank's requests of a generation, with the noise that they have where nothing is
        played ahead. Groups are numbered over all generations, as several are open at once."""
        step = generation * self._args.updates_per_generation
        if self._stream is not None:
            copies = range(self._args.num_generations)
            rows = [row for row in self._stream.rows(generation) for _ in copies]
        else:
            tasks = self._sampler(self._dataset).generation(generation)
            rows = [self._dataset[task] for task in tasks]
        rows = rows[self._ranks.slice(len(rows) // self._ranks.number)]
        first = generation * tasks_per_generation(self._args)
        return self._collector.train_requests(rows, step, first_group=first)
