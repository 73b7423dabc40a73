"""`musetrace.overhead` of a program: what it costs by a clock that the test turns, and what it launches."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import musetrace
from musetrace.cli.output import Screen
from musetrace.cli.overhead_page import page
from musetrace.errors import UsageError
from musetrace.overhead.clocks import HostStopwatch
from musetrace.overhead.measure import measure_program
from musetrace.overhead.program import TimedStep

Out = pytest.CaptureFixture[str]
STEP = "step"


class TurnedClock:
    """A clock that stands still until a program turns it on."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._rng = np.random.default_rng(5)

    def spend(self, time_ns: float, spread_ns: float = 0.0) -> None:
        self.now_ns += round(time_ns + spread_ns * self._rng.standard_normal())


def measured(
    make: Callable[[str], Any], clock: TurnedClock | None = None, **options: Any
) -> musetrace.OverheadResult:
    """By the clock that is given, or by the host's."""
    told = {
        "rounds": 20,
        "steps": 1,
        "warm_up": 1,
        "stamps": ("register", "store"),
        "device": "cpu",
        "seed": 0,
    }
    stopwatch = HostStopwatch(lambda: clock.now_ns) if clock else None
    return measure_program(make, stopwatch=stopwatch, **{**told, **options})


def program(clock: TurnedClock, cost_ns: dict[str, float], spread_ns: float = 0.0) -> Callable[[str], Any]:
    """Steps of 1 ms, and what the stamps cost."""

    def make(stamps: str) -> tuple[Callable[[], None], int]:
        return lambda: clock.spend(1_000_000 + cost_ns.get(stamps, 0), spread_ns), 4

    return make


def test_what_stamping_costs_is_found_and_what_costs_nothing_is_not() -> None:
    clock = TurnedClock()
    result = measured(program(clock, {"register": 2_000}, spread_ns=500), clock)
    register = result.of("register", STEP)
    assert register.verdict == "costs"
    assert register.added_ns.low < 2_000 < register.added_ns.high
    assert register.added_ns_per_launch is not None
    assert register.added_ns_per_launch.median == pytest.approx(register.added_ns.median / 4)
    assert register.added_share.median == pytest.approx(register.added_ns.median / 1_000_000, rel=0.01)
    for side in ("store", "off again"):
        assert result.of(side, STEP).verdict == "cannot tell"
    assert result.sound


def test_a_cost_without_noise_is_exact() -> None:
    clock = TurnedClock()
    result = measured(program(clock, {"register": 2_000, "store": -300}), clock, rounds=6, steps=3)
    register, store = result.of("register", STEP), result.of("store", STEP)
    assert (register.added_ns.low, register.added_ns.median, register.added_ns.high) == (2_000,) * 3
    assert register.time_ns.median == 1_002_000
    assert (store.verdict, store.added_ns.median) == ("saves", -300)
    assert result.baseline_ns[STEP].median == 1_000_000
    assert result.turns.counts.steps == {
        "off": 3 * 37,
        **dict.fromkeys(("off again", "register", "store"), 39),
    }


def test_too_few_rounds_tell_nothing() -> None:
    clock = TurnedClock()
    result = measured(program(clock, {"register": 900_000}), clock, rounds=5)
    assert result.of("register", STEP).verdict == "cannot tell"


def test_the_baseline_is_made_once_and_each_way_once() -> None:
    asked: list[str] = []

    def make(stamps: str) -> Callable[[], None]:
        asked.append(stamps)
        return lambda: None

    result = measured(make, rounds=1)
    assert asked == ["off", "register", "store"]
    assert result.turns.sides == ("off again", "register", "store")
    assert result.of("register", STEP).launches is None


def test_stamps_that_a_program_knows_of_are_priced() -> None:
    clock = TurnedClock()

    def make(stamps: str) -> TimedStep:
        cost = 3_000 if stamps == "register" else 0
        known = (150, 12_000) if stamps == "register" else None
        return TimedStep(lambda: clock.spend(1_000_000 + cost), launches=2, stamps=known)

    result = measured(make, clock, stamps=("register",), rounds=6)
    slowest, of_all = (
        getattr(result.of("register", STEP), name)
        for name in ("ns_per_stamp_of_slowest", "ns_per_stamp_of_all")
    )
    assert (slowest.median, of_all.median) == (20.0, 0.25)
    assert result.of("off again", STEP).ns_per_stamp_of_slowest is None


def test_a_build_that_launches_less_is_found() -> None:
    made = {"off": 8, "register": 8, "store": 8}

    def make(stamps: str) -> TimedStep:
        steps = iter(range(100))

        def launches() -> int:
            # As a decode that ends early when it is profiled.
            return 1 if stamps == "store" and next(steps) >= 2 else made[stamps]

        return TimedStep(lambda: None, launches=launches)

    result = measured(make, rounds=2)
    assert not result.sound
    assert result.turns.counts.first_differences == {
        "store": "round 0, step 0: 1 launches, where off made 8 launches"
    }


def test_a_null_test_that_finds_something_is_said() -> None:
    clock, calls = TurnedClock(), itertools.count(-2)  # two turns of warm-up

    def make(stamps: str) -> Callable[[], None]:
        def run() -> None:
            # A device that is slower whenever it is the turn of `off again`: ABBA, then BAAB.
            round_, place = divmod(next(calls), 4)
            is_again = round_ >= 0 and (place in (1, 2)) == (round_ % 2 == 0)
            clock.spend(1_000_000 + 5_000 * is_again)

        return run

    result = measured(make, clock, rounds=6, stamps=())
    assert result.of("off again", STEP).verdict == "costs"
    said = "! a null test, off again, found a difference (step): a cost below 5.00 us a step may be noise"
    assert said in "\n".join(page(result, Screen(200, False)))


@pytest.mark.parametrize("width", [60, 80, 133])
def test_no_line_of_the_page_is_too_long(width: int) -> None:
    clock = TurnedClock()
    result = measured(program(clock, {"register": 2_000}), clock, stamps=("register", "st\x1b[2Jore" * 9))
    lines = page(result, Screen(width, False))
    assert max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)
    assert any(line.startswith("register    costs 0.500 [0.500 0.500] us a launch") for line in lines)


def test_the_document_is_plain_json() -> None:
    clock = TurnedClock()
    result = measured(program(clock, {"register": 2_000}), clock, rounds=6)
    document = json.loads(json.dumps(result.to_json()))
    assert (document["format"], document["sound"], document["baseline"]) == (
        "musetrace overhead 1",
        True,
        "off",
    )
    assert len(document["turns"]) == 6 * 3 * 4
    (register,) = [entry for entry in document["comparisons"] if entry["side"] == "register"]
    assert register["verdict"] == "costs"
    assert register["added_ns"] == {"median": 2000.0, "low": 2000.0, "high": 2000.0, "count": 6}
    # The document holds what the verdict was made of.
    added = [
        sum(
            sign * turn["times_ns"]["step"] for turn in block for sign in [1 if turn["side"] != "off" else -1]
        )
        / 2
        for block in (
            [turn for turn in document["turns"] if (turn["round"], turn["beside"]) == (number, "register")]
            for number in range(6)
        )
    ]
    assert added == [2000.0] * 6


def test_the_function_of_the_package_measures() -> None:
    result = musetrace.overhead(
        lambda stamps: (lambda: stamps.encode()[:0], 3), rounds=1, warm_up=0, device="cpu"
    )
    assert isinstance(result, musetrace.OverheadResult)
    assert result.sound
    assert result.turns.counts.launches == {"off": 18, "off again": 6, "register": 6, "store": 6}
    with pytest.raises(UsageError, match="--rounds must be at least 1"):
        musetrace.overhead(lambda stamps: lambda: None, rounds=0)
