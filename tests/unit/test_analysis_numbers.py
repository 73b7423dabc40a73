"""The small numeric parts of the analysis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.analysis.certainty.percentiles import nearest_rank
from musetrace.analysis.spans.instances import extents
from musetrace.analysis.spans.intervals import newly_covered, sorted_axis
from musetrace.errors import AnalysisError
from tests.unit import analysis_oracle as oracle


def ints(values: list[int]) -> np.ndarray:
    return np.asarray(values, dtype=np.int64)


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**62), 2**62), max_size=40), st.integers(1, 100))
def test_percentile_is_a_value_that_so_many_do_not_exceed(values: list[int], percent: int) -> None:
    assert nearest_rank(ints(values), (percent,)) == (oracle.percentile(values, percent),)


def test_percentiles_of_one_to_ten() -> None:
    assert nearest_rank(ints(list(range(10, 0, -1)))) == (1, 5, 9)
    assert nearest_rank(ints([])) == (None, None, None)


spans = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 8)), max_size=30
)  # (group, begin, length)


@given(spans)
def test_newly_covered_adds_up_to_the_union_of_each_group(found: list[tuple[int, int, int]]) -> None:
    group = ints([one[0] for one in found])
    begin = ints([one[1] for one in found])
    end = begin + ints([one[2] for one in found])
    order, axis_begin, axis_end = sorted_axis(group, begin, end, 29)
    gain = newly_covered(axis_begin, axis_end)
    for one in range(4):
        union = {t for g, b, length in found if g == one for t in range(b, b + length)}
        assert gain[group[order] == one].sum() == len(union)


def test_an_axis_beyond_64_bits_is_refused_not_wrapped() -> None:
    with pytest.raises(AnalysisError, match="too many to be added up"):
        sorted_axis(ints([1 << 31]), ints([0]), ints([1]), 1 << 40)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9), st.integers(0, 5)), max_size=30))
@pytest.mark.parametrize("dense_entries", [0, 1 << 20])
def test_extents_are_the_first_begin_and_last_end_of_each_key(
    dense_entries: int, found: list[tuple[int, int, int]]
) -> None:
    key, begin = ints([one[0] for one in found]), ints([one[1] for one in found])
    end = begin + ints([one[2] for one in found])
    got = extents(key, begin, end, 10, dense_entries=dense_entries)
    by_key: dict[int, list[tuple[int, int]]] = {}
    for k, b, length in found:
        by_key.setdefault(k, []).append((b, b + length))
    expected = [(k, min(b for b, _ in mine), max(e for _, e in mine)) for k, mine in sorted(by_key.items())]
    assert list(zip(*(column.tolist() for column in got), strict=True)) == expected
