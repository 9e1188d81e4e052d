"""Rows that attend together: hand-computed partitions, and what sorting them spares."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentsgym.generation.embedded.forward import keys_read, split_by_length
from agentsgym.generation.embedded.kv_cache import SlotMemory

lengths_lists = st.lists(st.integers(1, 2000), min_size=1, max_size=70)


def test_equal_rows_stay_together() -> None:
    assert split_by_length(np.full(64, 500)) == [slice(0, 64)]
    assert keys_read(np.full(64, 500)) == 32_000


def test_a_short_and_a_long_half_part() -> None:
    lengths = np.array([100] * 8 + [1000] * 8)
    assert split_by_length(lengths) == [slice(0, 8), slice(8, 16)]
    assert keys_read(lengths) == 8 * 100 + 8 * 1000


def test_what_spares_little_stays_together() -> None:
    assert split_by_length(np.array([100] * 8 + [110] * 8)) == [slice(0, 16)]


def test_nothing_to_part() -> None:
    assert split_by_length(np.zeros(0, dtype=np.int64)) == []
    assert keys_read(np.zeros(0, dtype=np.int64)) == 0


@given(lengths_lists)
def test_parts_cover_all_rows_in_order(lengths: list[int]) -> None:
    rows = np.arange(len(lengths))
    found = np.concatenate([rows[part] for part in split_by_length(np.array(lengths))])
    assert found.tolist() == rows.tolist()


@given(lengths_lists)
def test_parting_never_reads_more(lengths: list[int]) -> None:
    assert sum(lengths) <= keys_read(np.array(lengths)) <= len(lengths) * max(lengths)


def test_permuted_rows_keep_their_content() -> None:
    memory = SlotMemory(1)
    memory.resize(3, 5)
    content = torch.arange(2 * 3 * 5, dtype=torch.float32).reshape(2, 3, 1, 5, 1)
    memory.planes = list(content.clone())
    memory.permute(torch.tensor([2, 0, 1]))
    assert torch.equal(torch.stack(memory.planes), content[:, [2, 0, 1]])
