"""Facts: medians and spreads are samples, integers stay exact, an offset is as right as it says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.probe.brackets import offset_facts, offset_of
from musetrace.probe.facts import exact, fact

FLOATS = st.floats(min_value=-1e12, max_value=1e12)
INTEGERS = st.integers(min_value=-(2**62), max_value=2**62)


def nearest_rank(values: Sequence[float], percent: int) -> float:
    """The definition, slowly."""
    return sorted(values)[max(math.ceil(percent * len(values) / 100), 1) - 1]


@given(st.one_of(st.lists(FLOATS, min_size=1), st.lists(INTEGERS, min_size=1)))
def test_median_and_spread_are_samples_by_nearest_rank(values: list[float]) -> None:
    found = fact("x", "ns", values)
    assert found.n == len(values)
    assert [found.p10, found.median, found.p90] == [nearest_rank(values, percent) for percent in (10, 50, 90)]
    assert {type(part) for part in (found.p10, found.median, found.p90)} == {type(values[0])}


def test_samples_of_any_shape_are_taken_together() -> None:
    assert fact("x", "ns", np.arange(24).reshape(2, 3, 4)).n == 24


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_no_samples_and_no_numbers_are_refused_by_name(samples: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^hop idle has "):
        fact("hop", "ns", samples, case="idle")


def test_a_fact_in_json_has_every_field() -> None:
    found = fact("hop", "ns", [3, 1, 2], case="idle", at=48, at_unit="KiB", note="half a round trip")
    assert found.to_json() == {
        "name": "hop",
        "unit": "ns",
        "n": 3,
        "median": 2,
        "p10": 1,
        "p90": 3,
        "note": "half a round trip",
        "case": "idle",
        "at": 48,
        "at_unit": "KiB",
    }
    assert exact("tick", "ns", 32, n=9).to_json()["p90"] == 32


@given(
    st.integers(min_value=-(2**61), max_value=2**61),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=50),
)
def test_the_true_offset_lies_within_the_error(offset_ns: int, delays: list[tuple[int, int]]) -> None:
    """The way there and back may be as lopsided as it likes."""
    rows = []
    for number, (there, back) in enumerate(delays):
        before = 10**6 * number
        rows.append([before, before + there + offset_ns, before + there + back])
    found = offset_of(np.array(rows, dtype=np.int64))
    assert found.consistent
    assert abs(found.offset_ns - offset_ns) <= found.error_ns
    assert found.error_ns <= min(-(-(there + back) // 2) for there, back in delays)


def test_brackets_that_do_not_agree_leave_the_narrowest_and_say_so() -> None:
    brackets = np.array([[0, 1050, 100], [1000, 2550, 1040], [2000, 3560, 2200]])
    found = offset_of(brackets)
    assert (found.offset_ns, found.error_ns, found.consistent) == (1530, 20, False)
    offset, error, width = offset_facts(brackets, "a minus b")
    assert "a clock was set or drifts" in offset.note
    assert (offset.median, error.median, width.median) == (1530, 20, 100)


def test_an_offset_of_nanoseconds_since_1970_is_exact() -> None:
    offset_ns = 1_795_968_537_488_226_391
    brackets = np.array([[5, 5 + offset_ns, 5], [7, 8 + offset_ns, 9]])
    assert offset_facts(brackets, "")[0].median == offset_ns
