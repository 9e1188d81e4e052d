"""Supports of most of the vocabulary, which are recorded as what they lack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsgym.types.supports import Supports, compact, is_wide, joined_supports, mask_of

masks = st.lists(st.booleans(), min_size=8, max_size=8).filter(any).map(np.array)
runs = st.lists(st.tuples(masks, st.integers(1, 3)), max_size=5)


def test_the_shorter_of_both_is_recorded():
    mask = np.ones(10, np.bool_)
    mask[[0, 4, 8, 9]] = False
    assert compact(mask).tolist() == [-2, -6, -10]  # without 0 and 4, and from 8 on
    assert compact(~mask).tolist() == [0, 4, 8, 9]
    assert compact(np.ones(3, np.bool_)).tolist() == [-5]
    assert mask_of(compact(mask), 12).tolist() == [*mask.tolist(), False, False]


def test_what_repeats_has_no_ids_of_its_own():
    wide, narrow = np.array([-3, -9], np.int32), [2, 5]
    supports = Supports.of([(1, wide), (2, wide), (4, wide.copy()), (5, narrow), (6, narrow)])
    assert supports.ids.tolist() == [-3, -9, 2, 5, 2, 5]
    assert supports.ends.tolist() == [2, 2, 2, 4, 6]
    assert not len(supports.forced) and not supports.whole
    assert supports.between(2, 5).ids.tolist() == [-3, -9]
    assert supports.between(2, 5).at.tolist() == [0, 2]
    assert supports.fits(np.array([0, 0, 6, 0, 3, 5, 2]))
    assert not supports.fits(np.array([0, 0, 1, 0, 3, 5, 2]))  # 1 is lacking
    assert not supports.fits(np.array([0, 0, 6, 0, 7, 5, 2]))  # it ends at 7


@given(runs, st.integers(0, 15), st.data())
def test_supports_are_cut_and_joined_and_give_their_masks(made, cut, data):
    every = [mask for mask, times in made for _ in range(times)]
    supports = Supports.of((place, compact(mask)) for place, mask in enumerate(every))
    assert [mask_of(ids, 8).tolist() for _, ids in supports] == [mask.tolist() for mask in every]
    first, second = supports.between(0, cut), supports.between(cut, 16, cut)
    assert list(map(str, joined_supports([first, second]))) == list(map(str, supports))
    assert supports.forced.tolist() == [k for k, mask in enumerate(every) if mask.sum() == 1]
    places = [place for places, _ in supports.wide() for place in places.tolist()]
    assert places == [place for place, ids in supports if is_wide(ids)]
    ids = [data.draw(st.sampled_from(np.flatnonzero(mask).tolist())) for mask in every]
    assert supports.fits(np.array(ids, np.int32))
    for k, mask in enumerate(every):
        if not mask.all():
            wrong = int(np.flatnonzero(~mask)[0])
            assert not supports.fits(np.array([*ids[:k], wrong, *ids[k + 1 :]], np.int32))


@pytest.mark.parametrize("ends", [[0, 2], [1, 1], [2, 1]], ids=str)
def test_none_repeats_what_is_not_wide(ends):
    with pytest.raises(ValueError, match="do not divide"):
        Supports([0, 1], ends, [3, 4][: ends[-1]])
