"""What a Memo keeps and forgets."""

import copy
import pickle
import time

from hypothesis import given
from hypothesis import strategies as st

from agentsgym.tokens.memo import Memo


def test_the_oldest_is_forgotten_first():
    memo: Memo[str, int] = Memo(10)
    memo.put("a", 1, 4)
    memo.put("b", 2, 4)
    memo.put("c", 3, 4)
    assert [memo.get(key) for key in "abc"] == [None, 2, 3]


def test_what_is_too_large_drives_nothing_out():
    memo: Memo[str, int] = Memo(10)
    memo.put("b", 2, 10)
    memo.put("a", 1, 11)
    assert (memo.get("a"), memo.get("b")) == (None, 2)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30))))
def test_it_never_holds_more_than_it_may(puts: list[tuple[int, int]]) -> None:
    memo: Memo[int, int] = Memo(40)
    sizes: dict[int, int] = {}
    for key, size in puts:
        if memo.get(key) is None:
            sizes[key] = size
        memo.put(key, key, size)
        held = [k for k in range(10) if memo.get(k) is not None]
        assert sum(sizes[k] for k in held) <= 40
        assert all(memo.get(k) == k for k in held)


def test_copies_begin_empty():
    memo: Memo[str, int] = Memo(10)
    memo.put("a", 1, 4)
    for other in (copy.deepcopy(memo), pickle.loads(pickle.dumps(memo))):
        assert other.get("a") is None
        other.put("b", 2, 11)
        assert other.get("b") is None


def test_forgetting_costs_no_more_than_keeping():
    memo: Memo[int, int] = Memo(20_000)

    def seconds(start: int) -> float:
        began = time.thread_time()
        for key in range(start, start + 20_000):
            memo.put(key, key, 1)
        return time.thread_time() - began

    keeping = seconds(0)
    forgetting = min(seconds(start) for start in (20_000, 40_000, 60_000))
    assert forgetting < 5 * keeping
