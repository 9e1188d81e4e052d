"""The queue of groups, with a source whose rollouts end in the order that the test gives."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.training.distributed import Ranks
from agentsgym.training.rollouts.ahead import AheadPlayer
from agentsgym.training.rollouts.collector import age
from agentsgym.training.rollouts.group_batches import GroupBatches
from agentsgym.training.rollouts.group_order import Submitted
from agentsgym.training.rollouts.group_queue import GroupQueue
from agentsgym.training.rollouts.queue_file import NAME, read_queue, write_queue
from agentsgym.types import Episode, Rollout, RolloutRequest, Step

SIZE = 2
"""Rollouts of a group."""


def requests_of(number):
    row = {"env_class_path": "Digit", "env_config": {}, "task_data": {"number": number}}
    return [RolloutRequest.of(row, number, index, 100 * number + index) for index in range(SIZE)]


def over(request, version, *, failed=False):
    step = Step(0, "go", "a", 1.0, True)
    return Rollout(
        request.session_id,
        request.group,
        request.index,
        request.env_class_path,
        request.env_config,
        request.task_data,
        episodes=(Episode(0, (step,), (), 1.0, 1.0, "done"),),
        rows=(),
        error="it broke" if failed else None,
        policy_version=version,
    )


@dataclass
class Scripted:
    """Ends the rollouts (group, index) in the order of `script`, one at a `poll`."""

    script: list[tuple[int, int]]
    version: int = 0
    idle_seconds: float = 0.0
    submitted: list[int] = field(default_factory=list)
    open: dict = field(default_factory=dict)
    most_open: int = 0

    def submit(self, requests):
        self.submitted += [request.group for request in requests if request.index == 0]
        self.open |= {(request.group, request.index): request for request in requests}

    def poll(self, timeout=None):
        if timeout == 0.0:
            return []
        key = next(key for key in self.script if key in self.open)
        self.script.remove(key)
        return [over(self.open.pop(key), self.version)]


def in_queue(script, groups, *, most_age=1, version=0):
    source = Scripted(script, version)
    queue = GroupQueue(source, most_age=most_age, updates=1)
    queue.submit([(number, requests_of(number)) for number in range(groups)], 0)
    return source, queue


def both(*groups):
    """The script in which these groups finish one after another."""
    return [(group, index) for group in groups for index in range(SIZE)]


def taken(groups):
    return [group.number for group in groups]


def test_the_groups_that_finish_first_are_taken_and_the_late_ones_later():
    _, queue = in_queue(both(3, 1, 0, 2), 4)
    assert taken(queue.take(2, 0)) == [1, 3]
    assert queue.numbers == [0, 2] and queue.complete == 0
    assert taken(queue.take(2, 1)) == [0, 2]
    assert len(queue) == 0


def test_a_group_is_complete_with_its_last_rollout():
    _, queue = in_queue([(0, 0), (1, 1), (1, 0), (2, 0), (2, 1), (0, 1)], 3)
    first = queue.take(2, 0)
    assert taken(first) == [1, 2]
    assert [[(r.group, r.index) for r in g.in_order()] for g in first] == [both(1), both(2)]


def test_a_group_that_would_become_too_old_is_waited_for():
    """Group 0 has a rollout of version 0, so with one generation of age it is due at step 1."""
    script = [(0, 0), *both(1, 2)]
    source, queue = in_queue(script, 4, most_age=1)
    assert taken(queue.take(2, 0)) == [1, 2]
    source.version = 1
    queue.submit([(number, requests_of(number)) for number in (4, 5)], 1)
    source.script += [*both(3, 4, 5), (0, 1)]
    assert taken(queue.take(2, 1)) == [0, 3]
    assert source.script == []


def test_a_group_that_is_still_played_may_miss_its_generation():
    """Its last actions are young, whatever generation it was submitted in."""
    source, queue = in_queue(both(1), 3, most_age=2)
    assert taken(queue.take(1, 0)) == [1]
    for step, group in ((1, 2), (2, 3), (3, 4)):
        queue.submit([(step + 2, requests_of(step + 2))], step)
        source.version, source.script = step, both(group)
        assert taken(queue.take(1, step)) == [group]
    assert queue.numbers == [0, 5]


def test_places_are_kept_for_what_must_enter_one_of_the_next_batches():
    """Four groups are due at step 2 and three batches of two are left: at step 1 two must go."""
    first = [(0, 0), (1, 0), (2, 0), (3, 0)]
    source, queue = in_queue([*first, *both(4, 5)], 6, most_age=2)
    assert taken(queue.take(2, 0)) == [4, 5]
    source.version = 1
    queue.submit([(number, requests_of(number)) for number in (6, 7)], 1)
    source.script += [*both(6, 7), (1, 1), (0, 1), (2, 1), (3, 1)]
    assert taken(queue.take(2, 1)) == [0, 1]
    source.version = 2
    assert taken(queue.take(2, 2)) == [2, 3]
    assert taken(queue.take(2, 3)) == [6, 7]


def test_a_failed_rollout_has_no_age():
    source, queue = in_queue([], 2, most_age=2)
    queue._receive([over(source.open[0, 0], 0, failed=True), over(source.open[1, 0], 0)])
    assert [group.oldest for group in queue._groups.values()] == [None, 0]


def player(source, *, ahead, batches=100, submitted=None, groups=2, updates=1):
    return AheadPlayer(
        source,
        requests_of,
        lambda number: range(number * groups, (number + 1) * groups),
        groups=groups,
        ahead=ahead,
        updates=updates,
        batches=batches,
        submitted=submitted or Submitted(0),
    )


def test_generations_are_submitted_as_far_ahead_as_allowed_and_no_further_than_the_last():
    source = Scripted(both(*range(8)))
    ahead = player(source, ahead=2, batches=4)
    for step, expected in enumerate([6, 8, 8, 8]):
        source.version = step
        requests, rollouts = ahead.batch(step)
        assert source.submitted == list(range(expected))
        assert [r.session_id for r in requests] == [r.session_id for r in rollouts]
        assert [r.group for r in rollouts] == [2 * step, 2 * step, 2 * step + 1, 2 * step + 1]


def test_what_was_in_the_queue_of_a_saved_run_is_played_first(tmp_path):
    source = Scripted(both(0, 3, 1, 2))
    before = player(source, ahead=1)
    before.batch(0)
    assert before.submitted == Submitted(2, (1, 2))
    write_queue(tmp_path, before.submitted, 2)
    again = Scripted(both(1, 2, 4, 5), version=1)
    after = player(again, ahead=1, submitted=read_queue(tmp_path, 2))
    _, rollouts = after.batch(1)
    assert again.submitted == [1, 2, 4, 5]
    assert {r.group for r in rollouts} == {1, 2}
    assert after.submitted == Submitted(3, (4, 5))


def test_a_queue_of_a_larger_staleness_is_gone_through_in_order():
    source = Scripted(both(*range(1, 9)))
    ahead = player(source, ahead=0, submitted=Submitted(3, (1, 3, 4, 5)))
    for step, groups in enumerate([{1, 3}, {4, 5}, {6, 7}], start=1):
        source.version = step
        assert {r.group for r in ahead.batch(step)[1]} == groups


def test_a_run_that_goes_on_within_a_generation_gets_all_its_batches():
    """It plays the rest of that generation anew, with groups that it has not had."""
    source = Scripted(both(*range(4, 9)), version=3)
    ahead = player(source, ahead=1, updates=2, batches=2, submitted=Submitted(3, (4, 5)))
    seen = [r.group for step in (3, 4) for r in ahead.batch(step)[1][::SIZE]]
    assert seen == source.submitted == [4, 5, 6, 7]


def test_a_saved_queue_with_too_few_groups_is_filled_up():
    source = Scripted(both(*range(3, 9)))
    ahead = player(source, ahead=1, batches=2, submitted=Submitted(3, (3,)))
    batches = [{r.group for r in ahead.batch(step)[1]} for step in (1, 2)]
    assert batches == [{3, 6}, {7, 8}] and ahead.submitted == Submitted(5, (9,))


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"generations": 1, "groups": 2}',
        '{"generations": 1, "groups": 3, "open": []}',
        '{"generations": 1, "groups": 2, "open": [2]}',
        '{"generations": 1, "groups": 2, "open": [0, 0]}',
        '{"generations": 1, "groups": 2, "open": ["a"]}',
        '{"generations": true, "groups": 2, "open": []}',
        '{"generations": -1, "groups": 2, "open": []}',
        '{"generations": 2, "groups": 2, "open": [1, 2, 3]}',
        "null",
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"generations": 1, "groups": 2, "open": []}' + " " * (1 << 24), id="large"),
    ],
)
def test_a_queue_file_that_does_not_fit_is_left_with_a_warning(tmp_path, text, caplog):
    (tmp_path / NAME).write_text(text)
    assert read_queue(tmp_path, 2) is None
    assert "does not fit this run" in caplog.text
    assert read_queue(tmp_path / "none", 2) is None
    write_queue(tmp_path, None, 2)
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("kind", ["link", "endless", "folder"])
def test_a_queue_file_that_is_no_file_is_not_read(tmp_path, kind, caplog):
    write_queue(tmp_path, Submitted(3, (1, 4)), 2)
    (tmp_path / NAME).rename(tmp_path / "other")
    if kind == "folder":
        (tmp_path / NAME).mkdir()
    else:
        (tmp_path / NAME).symlink_to(tmp_path / "other" if kind == "link" else "/dev/zero")
    assert read_queue(tmp_path, 2) is None
    assert "does not fit this run" in caplog.text


@pytest.mark.parametrize("generations", [5, 10**30])
@pytest.mark.parametrize("staleness", [0, 1])
def test_a_queue_with_more_generations_than_the_run_can_have_played_is_left(
    tmp_path, generations, staleness, caplog
):
    """A stream would be read up to there."""
    write_queue(tmp_path, Submitted(generations, (1, 4)), 2)
    batches = GroupBatches(
        SimpleNamespace(max_staleness=staleness, should_log=True),
        None,
        Ranks(SimpleNamespace(process_index=0, num_processes=1)),
        groups=2,
        row_of=None,
        note=caplog.messages.append,
    )
    batches.load(tmp_path)
    batches.begin_at(3)
    assert batches._saved is None and batches._order is None
    assert "does not fit this run" in caplog.text
    write_queue(tmp_path, Submitted(4, (1, 4)), 2)
    batches.load(tmp_path)
    batches.begin_at(3)
    assert batches._saved == Submitted(4, (1, 4))


def test_processes_share_the_groups_of_a_queue_that_are_played_without_one(tmp_path):
    """A group may be spread over them, as those of the data loader are."""
    write_queue(tmp_path, Submitted(3, (1, 4, 8)), 3)
    args = SimpleNamespace(
        max_staleness=0, num_generations=SIZE, updates_per_generation=1, should_log=False
    )
    collector = SimpleNamespace(group_requests=lambda row, *_: requests_of(row["number"]))
    played = []
    for index in (0, 1):
        batches = GroupBatches(
            args,
            collector,
            Ranks(SimpleNamespace(process_index=index, num_processes=1)),
            groups=3,
            row_of=lambda number: {"number": number},
            note=print,
        )
        batches.load(tmp_path)
        batches.begin_at(2)
        batches._ranks.number = 2
        batches._ranks.together = lambda act: act()
        played.append([batches.next_requests() for _ in range(2)])
    assert all(len(share) == 3 for shares in played for share in shares)
    for batch, groups in enumerate([(1, 4, 8), (9, 10, 11)]):
        both_shares = [(r.group, r.index) for shares in played for r in shares[batch]]
        assert both_shares == [(group, index) for group in groups for index in range(SIZE)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), ahead=st.integers(0, 3), groups=st.integers(1, 3), updates=st.integers(1, 2))
def test_no_group_is_split_or_lost_or_too_old_whatever_the_order(data, ahead, groups, updates):
    """Rollouts end in any order, also between two batches, with the newest weights or those of the
    generation before, but not of one before their submission."""
    last, source = 6, Scripted([])
    running = player(source, ahead=ahead, batches=last, groups=groups, updates=updates)
    begun, ended, seen = {}, [], []

    def end_one():
        key = data.draw(st.sampled_from(sorted(source.open)))
        least = max(begun[key], source.version - updates)
        return over(source.open.pop(key), data.draw(st.sampled_from([least, source.version])))

    def submit(requests):
        begun.update({(r.group, r.index): source.version for r in requests})
        Scripted.submit(source, requests)

    def poll(timeout=None):
        if timeout == 0.0:
            return [ended.pop(0) for _ in range(len(ended))]
        return [end_one()]

    source.submit, source.poll = submit, poll
    for generation in range(last):
        step = source.version = generation * updates
        _, rollouts = running.batch(step)
        assert len(running._queue) <= ahead * groups
        assert all(age(r, step, updates) <= ahead for r in rollouts)
        numbers = [r.group for r in rollouts]
        assert [r.index for r in rollouts] == list(range(SIZE)) * groups
        assert numbers == sorted(numbers) and len(set(numbers)) == groups
        seen += sorted(set(numbers))
        between = data.draw(st.integers(0, len(source.open)))
        ended += [end_one() for _ in range(between)]
    assert sorted(seen) == list(range(last * groups))
