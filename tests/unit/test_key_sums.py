"""Sums by key against a plain dictionary, however far apart the keys are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.analysis.kept_sums.key_sums import KeySums

# Columns that are few, dense, wide with few entries, wider than a table may be, and below zero.
SPANS = st.sampled_from([1, 3, 80, 5_000, 1 << 19, 1 << 22, 1 << 45])


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[tuple[int, ...], int]]:
    spans = draw(st.lists(SPANS, min_size=1, max_size=4))
    low = draw(st.sampled_from([0, -7, 1 << 40]))
    key = st.tuples(*(st.integers(low, low + span - 1) for span in spans))
    return draw(st.lists(st.tuples(key, st.integers(-5, 5)), min_size=1, max_size=60))


def expected(of: list[tuple[tuple[int, ...], int]]) -> dict[tuple[int, ...], int]:
    sums: Counter[tuple[int, ...]] = Counter()
    for key, number in of:
        sums[key] += number
    return {key: sums[key] for key in sorted(sums) if sums[key]}


def summed(of: list[tuple[tuple[int, ...], int]]) -> KeySums:
    columns = [np.array(column, dtype=np.int64) for column in zip(*(key for key, _ in of), strict=True)]
    return KeySums.of(*columns, sums=np.array([number for _, number in of]))


@given(entries())
def test_sums_are_those_of_a_dictionary_in_the_order_of_keys(of: list[tuple[tuple[int, ...], int]]) -> None:
    made = summed(of)
    assert list(made.as_dict().items()) == list(expected(of).items())
    counted = KeySums.of(*(np.array(column) for column in zip(*(key for key, _ in of), strict=True)))
    assert counted.as_dict() == expected([(key, 1) for key, _ in of])


@given(entries())
def test_parts_merge_into_the_whole(of: list[tuple[tuple[int, ...], int]]) -> None:
    parts = [part for part in (of[::2], of[1::2]) if part]
    assert KeySums.merged([summed(part) for part in parts]).as_dict() == expected(of)


@given(entries(), st.integers(-3, 3), st.integers(-(1 << 40), 1 << 40))
def test_one_number_stands_for_all_entries(
    of: list[tuple[tuple[int, ...], int]], every: int, key: int
) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*(key for key, _ in of), strict=True)]
    made = KeySums.of(key, *columns, sums=every)
    assert made.as_dict() == expected([((key, *keys), every) for keys, _ in of])
    assert KeySums.of(key, key + 1, sums=every).as_dict() == ({(key, key + 1): every} if every else {})


@given(st.lists(SPANS, min_size=1, max_size=3), st.booleans(), st.integers(0, 2**32 - 1))
def test_many_entries_are_summed_as_a_dictionary_does(spans: list[int], counts: bool, seed: int) -> None:
    """Enough of them to be sorted by digits, or to have a table of the keys that there are."""
    generator, size = np.random.default_rng(seed), 3_000
    columns = [generator.integers(-span // 2, -span // 2 + span, size) for span in spans]
    numbers = np.ones(size, dtype=np.int64) if counts else generator.integers(-(1 << 50), 1 << 50, size)
    keys = zip(*(column.tolist() for column in columns), strict=True)
    of = list(zip(keys, numbers.tolist(), strict=True))
    made = KeySums.of(*columns, sums=1 if counts else numbers)
    assert list(made.as_dict().items()) == list(expected(of).items())


def test_keys_may_be_as_far_apart_as_numbers_can_be() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    made = KeySums.of(
        np.array([high, low, 0, high]), np.array([low, high, 0, low]), sums=np.array([1, 2, 3, 4])
    )
    assert list(made.as_dict().items()) == [((low, high), 2), ((0, 0), 3), ((high, low), 5)]


def test_what_is_not_int64_or_not_in_a_row_is_taken_as_it_is_meant() -> None:
    made = KeySums.of(np.array([1, 9, 1, 9, 2, 9], dtype=np.int32)[::2], sums=np.array([True, True, True]))
    assert made.as_dict() == {(1,): 2, (2,): 1}
    assert KeySums.of(np.zeros(0, dtype=np.int64), 3).as_dict() == {}
    assert len(KeySums.of(np.zeros(0, dtype=np.int64), 3).keys) == 2


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="a key or sums is not a list of 3"):
        KeySums.of(np.arange(3), np.arange(2))
    with pytest.raises(ValueError, match="a key or sums is not a list of 3"):
        KeySums.of(np.arange(3), sums=np.arange(4))
