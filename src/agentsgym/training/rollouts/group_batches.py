"""Batches of groups that are drawn by their number, not by the data loader."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentsgym.training.config import GRPOEnvConfig
from agentsgym.training.distributed import Ranks
from agentsgym.training.rollouts.ahead import AheadPlayer
from agentsgym.training.rollouts.collector import RolloutCollector, drop_stale
from agentsgym.training.rollouts.group_order import GroupOrder, Submitted
from agentsgym.training.rollouts.queue_file import read_queue, warn, write_queue
from agentsgym.types import Rollout, RolloutRequest


class GroupBatches:
    """The batches of a training that plays ahead, or that continues one that did: with
    `max_staleness: 0` it plays the groups that were open there, then generation by generation.

    A generation has `groups` groups; `row_of` gives the training row of a group, counted over all
    generations. Every rank must call each method.
    """

    def __init__(
        self,
        args: GRPOEnvConfig,
        collector: RolloutCollector,
        ranks: Ranks,
        *,
        groups: int,
        row_of: Callable[[int], Mapping[str, Any]],
        note: Callable[[str], None],
    ) -> None:
        self._args = args
        self._collector = collector
        self._ranks = ranks
        self._groups = groups
        self._row_of = row_of
        self._note = note
        self._saved: Submitted | None = None
        self._folder = Path()
        self._order: GroupOrder | None = None
        self._player: AheadPlayer | None = None

    @property
    def in_use(self) -> bool:
        """Whether this training draws groups by number."""
        return self._args.max_staleness > 0 or self._order is not None

    def next_requests(self) -> list[RolloutRequest]:
        """This rank's share of the next groups, to be played at once."""
        order = self._order
        assert order is not None
        numbers = self._ranks.together(lambda: order.take(self._groups))
        size = self._args.num_generations
        share = self._ranks.slice(len(numbers) * size // self._ranks.number)
        places = range(len(numbers) * size)[share]
        groups = {place // size for place in places}
        played = {group: self._requests_of(numbers[group]) for group in groups}
        return [played[place // size][place % size] for place in places]

    def start_player(self, step: int, max_steps: int) -> None:
        """Begin to play ahead in a training of `max_steps` that begins or continues at `step`."""
        if self._player is not None:
            return
        updates, share = self._args.updates_per_generation, self._groups // self._ranks.number
        saved = self._saved or Submitted(step // updates)
        mine = saved.open[self._ranks.slice(len(saved.open) // self._ranks.number)]
        self._player = AheadPlayer(
            self._collector.source or self._collector.open_source(),
            self._requests_of,
            lambda number: self._groups_of(number)[self._ranks.slice(share)],
            groups=share,
            ahead=self._args.max_staleness,
            updates=updates,
            batches=-(-max_steps // updates) - step // updates,
            submitted=Submitted(saved.generations, mine),
        )

    def next_ahead(self, step: int) -> tuple[list[RolloutRequest], list[Rollout]]:
        """The requests and rollouts of the groups that finished first; rollouts that are too old in
        spite of the queue are marked as failed."""
        args, player = self._args, self._player
        assert player is not None
        requests, rollouts = player.batch(step)
        fresh = drop_stale(rollouts, step, args.updates_per_generation, args.max_staleness)
        return requests, fresh

    def waiting(self) -> dict[str, float]:
        """How the learner and the sampler waited for each other, by metric; means over ranks. Empty
        where nothing is played ahead, and at the first batch."""
        mine = self._player.waiting() if self._player else None
        shares = [] if mine is None else [(mine.learner, mine.sampler, mine.complete)]
        known = self._ranks.gather(shares) if self._player else []
        names = ("ahead/learner_waited", "ahead/sampler_waited", "ahead/groups_ready")
        return {
            name: sum(values) / len(values)
            for name, values in zip(names, zip(*known, strict=True), strict=bool(known))
        }

    def end(self) -> None:
        """Forget the training."""
        self._saved = self._order = self._player = None

    def save(self, folder: Path) -> None:
        """Write to a checkpoint which groups have not been in a batch."""
        left = self._left()
        if self._args.should_save:
            write_queue(folder, left, self._groups)

    def _left(self) -> Submitted | None:
        if self._order is not None:
            return self._order.left()
        if self._player is None:
            return None
        mine = self._player.submitted
        return Submitted(mine.generations, tuple(sorted(self._ranks.gather(list(mine.open)))))

    def load(self, folder: Path) -> None:
        """Find out which groups the run of a checkpoint had open, to play them first."""
        read = self._ranks.together(lambda: read_queue(folder, self._groups))
        self._saved = self._ranks.gather([read])[0]
        self._folder = folder

    def begin_at(self, step: int) -> None:
        """Training begins, or continues at `step` with what was loaded."""
        saved = self._saved
        if saved is None:
            return
        if not saved.may_be_at(step, self._groups):
            self._saved = None
            warn(self._folder)
            return
        if not self._args.max_staleness:
            self._order = GroupOrder(saved, self._groups_of)
        if saved.open and self._args.should_log:
            self._note(_sentence(len(saved.open), self._args.max_staleness))

    def _groups_of(self, generation: int) -> range:
        """The numbers of a generation's groups."""
        return range(generation * self._groups, (generation + 1) * self._groups)

    def _requests_of(self, number: int) -> list[RolloutRequest]:
        generation, group = divmod(number, self._groups)
        step = generation * self._args.updates_per_generation
        return self._collector.group_requests(self._row_of(number), step, group, number)


def _sentence(number: int, ahead: int) -> str:
    """What a run that continues is told of the groups that were open."""
    now = "" if ahead else "; with max_staleness=0 nothing is played ahead any more"
    return (
        f"The checkpoint's run had begun {number} groups that were in no batch yet; they are "
        f"played first, from their beginning{now}"
    )
