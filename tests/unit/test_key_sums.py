"""Sums by key against a plain dictionary, however far apart the keys are."""

from __future__ import annotations

from collections import Counter

import numpy as np
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
