"""What a measurement found: the numbers, the checks, and what they allow to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from musetrace.analysis.certainty.bootstrap import CONFIDENCE, RESAMPLES, Interval, bootstrap_median
from musetrace.overhead.clocks import Clock
from musetrace.overhead.machine_code import CodeComparison
from musetrace.overhead.stamp_count import StampCount
from musetrace.overhead.statistics import paired, verdict_of
from musetrace.overhead.turns import Schedule, Turns

FORMAT = "musetrace overhead 1"
OFF = "off"
NULL = "off again"
ABSENT = "absent"  # compiled from a source without stamps

# What is timed: the launches of a step on their device, and the whole step as the host sees it.
LAUNCHES, STEP = "launches", "step"


@dataclass(frozen=True)
class Comparison:
    """A side beside the baseline, by one measure.

    ``time_ns`` is the side's own time of a step, ``added_ns`` what it takes more than its neighbours of the
    baseline, ``added_share`` that as a share of theirs. ``launches`` are those of a step, None where they are
    not known.
    """

    side: str
    measure: str
    time_ns: Interval
    added_ns: Interval
    added_share: Interval
    launches: float | None
    stamps: StampCount | None
    resolution_ns: float

    @property
    def verdict(self) -> str:
        """``costs``, ``saves`` or ``cannot tell``."""
        return verdict_of(self.added_ns, self.resolution_ns)

    @property
    def added_ns_per_launch(self) -> Interval | None:
        """None where the launches of a step are not known."""
        return self.added_ns.scaled(1 / self.launches) if self.launches else None

    @property
    def ns_per_stamp_of_slowest(self) -> Interval | None:
        """Added time over the stamps of the slowest block of each launch, which takes them in turn."""
        return self.added_ns.scaled(1 / self.stamps.slowest) if self.stamps and self.stamps.slowest else None

    @property
    def ns_per_stamp_of_all(self) -> Interval | None:
        """Added time over the stamps that all blocks take, most of them at the same time."""
        return self.added_ns.scaled(1 / self.stamps.all) if self.stamps and self.stamps.all else None

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types."""
        optional = {
            "time_ns_per_launch": self.time_ns.scaled(1 / self.launches) if self.launches else None,
            "added_ns_per_launch": self.added_ns_per_launch,
            "ns_per_stamp_of_slowest_blocks": self.ns_per_stamp_of_slowest,
            "ns_per_stamp_of_all": self.ns_per_stamp_of_all,
        }
        return {
            "side": self.side,
            "measure": self.measure,
            "verdict": self.verdict,
            "time_ns": self.time_ns.to_json(),
            "added_ns": self.added_ns.to_json(),
            "added_share": self.added_share.to_json(),
            "launches_per_step": self.launches,
            "stamps": self.stamps.to_json() if self.stamps else None,
            **{name: value.to_json() if value else None for name, value in optional.items()},
        }


@dataclass(frozen=True)
class Facts:
    """What is known of a measurement besides its times.

    Attributes:
        subject: what was measured, in JSON types.
        clocks: by measure.
        stamps: what a step of a side stamps, by its name.
        conditions: readings ``before`` and ``after``, see ``conditions``.
        machine_code: off beside absent; a sentence where that was not compared.
        recorder: what became of the recording, in JSON types; a sentence where nothing was recorded.
    """

    subject: dict[str, Any]
    clocks: Mapping[str, Clock]
    stamps: Mapping[str, StampCount] = field(default_factory=dict)
    conditions: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    machine_code: tuple[CodeComparison, ...] | str = "not compared"
    recorder: dict[str, Any] | str = "not measured"


@dataclass(frozen=True)
class OverheadResult:
    """The whole result. ``baseline_ns`` is the baseline's time of a step by measure."""

    facts: Facts
    schedule: Schedule
    seed: int
    turns: Turns
    baseline_ns: Mapping[str, Interval]
    comparisons: tuple[Comparison, ...]

    @property
    def outputs_equal(self) -> bool:
        """Whether all outputs that were compared are the same, bit for bit."""
        return self.turns.outputs.equal

    @property
    def counts_equal(self) -> bool:
        """Whether all sides made the same launches."""
        return self.turns.counts.equal

    @property
    def unstamped(self) -> dict[str, str]:
        """What is missing, by side, where launches of a build with stamps left none."""
        found = {}
        for side, count in self.facts.stamps.items():
            made = self.turns.counts.per_step(side)
            if None not in (made, count.launches) and count.launches != made:
                found[side] = f"{count.launches} of {made:g} launches stamped"
        return found

    @property
    def code_equal(self) -> bool | None:
        """Whether off and absent have the same machine code; None where that was not compared."""
        if isinstance(self.facts.machine_code, str):
            return None
        return all(kernel.difference is None for kernel in self.facts.machine_code)

    @property
    def null_tests(self) -> tuple[str, ...]:
        """Sides that cannot cost anything: the baseline once more, and what has its machine code."""
        same = (ABSENT,) if self.code_equal and ABSENT in self.turns.sides else ()
        return (NULL, *same)

    @property
    def sound(self) -> bool:
        """Whether stamps were taken, and outputs, launches and machine code are the same."""
        same = self.outputs_equal and self.counts_equal and self.code_equal is not False
        return same and not self.unstamped

    def of(self, side: str, measure: str) -> Comparison:
        """The comparison of a side by a measure. Raises KeyError."""
        for comparison in self.comparisons:
            if (comparison.side, comparison.measure) == (side, measure):
                return comparison
        raise KeyError((side, measure))

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON types; times in ns."""
        facts, code = self.facts, self.facts.machine_code
        return {
            "format": FORMAT,
            "subject": facts.subject,
            "method": {
                "order": "ABBA beside the baseline, BAAB in every second round",
                "rounds": self.schedule.rounds,
                "steps_per_turn": self.schedule.steps,
                "warm_up_turns": self.schedule.warm_up,
                "clocks": {measure: vars(clock) for measure, clock in facts.clocks.items()},
                "interval": f"{CONFIDENCE:.0%} percentile bootstrap of the median, {RESAMPLES} resamples, "
                "no narrower than between ordered values",
                "seed": self.seed,
                "null_tests": list(self.null_tests),
            },
            "sound": self.sound,
            "baseline": self.turns.baseline,
            "baseline_ns": {measure: time.to_json() for measure, time in self.baseline_ns.items()},
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "outputs": self.turns.outputs.to_json(),
            "counts": {**self.turns.counts.to_json(), "unstamped": self.unstamped},
            "machine_code": code if isinstance(code, str) else [kernel.to_json() for kernel in code],
            "recorder": facts.recorder,
            "conditions": dict(facts.conditions),
            "turns": [vars(turn) for turn in self.turns.turns],
        }


def make_result(turns: Turns, facts: Facts, schedule: Schedule, seed: int) -> OverheadResult:
    """Compare all sides with the baseline, by all measures."""
    measures = tuple(turns.turns[0].times_ns)
    return OverheadResult(
        facts,
        schedule,
        seed,
        turns,
        {measure: bootstrap_median(turns.of_side(turns.baseline, measure), seed) for measure in measures},
        tuple(_compared(turns, facts, side, measure, seed) for measure in measures for side in turns.sides),
    )


def _compared(turns: Turns, facts: Facts, side: str, measure: str, seed: int) -> Comparison:
    own, base = turns.beside(side, measure)
    added_ns, added_share = paired(own, base)
    return Comparison(
        side,
        measure,
        bootstrap_median(own.mean(axis=1), seed),
        bootstrap_median(added_ns, seed),
        bootstrap_median(added_share, seed),
        turns.counts.per_step(turns.baseline),
        facts.stamps.get(side),
        facts.clocks[measure].resolution_ns,
    )
