"""A fact: one figure with its unit, how many samples it stands on, and how far they spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.analysis.certainty.percentiles import nearest_rank

Values = npt.NDArray[np.float64] | npt.NDArray[np.int64] | Sequence[float] | Sequence[int]


@dataclass(frozen=True)
class Fact:
    """One figure.

    Attributes:
        name: what was measured; ``case`` and ``at`` tell its variants apart.
        unit: of ``median``, ``p10`` and ``p90``; empty for a count.
        n: samples.
        median: nearest rank, like ``p10`` and ``p90``, so all three were seen. Integers stay integers.
        note: how to read it, if that needs saying.
        case: the variant, empty where there is one.
        at: the quantity that was varied, in ``at_unit``: the x axis of a curve.
    """

    name: str
    unit: str
    n: int
    median: float | int
    p10: float | int
    p90: float | int
    note: str = ""
    case: str = ""
    at: float | int | None = None
    at_unit: str = ""

    def to_json(self) -> dict[str, Any]:
        """All fields, by name."""
        return asdict(self)


@dataclass(frozen=True)
class Findings:
    """What an experiment found: facts, and sentences about all of them."""

    facts: Sequence[Fact]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment:
    """A group of facts that are measured together.

    Attributes:
        name: for ``--only``.
        title: one line, without a full stop.
        measure: measures on a device and gives what it found. Raises NotHereError where the device has
            nothing to measure, RuntimeError where the measurement failed.
    """

    name: str
    title: str
    measure: Callable[[Any], Findings]


@dataclass(frozen=True)
class Outcome:
    """How an experiment ended: ``measured``, ``skipped`` or ``failed``; ``why`` for the last two."""

    name: str
    title: str
    state: str
    seconds: float
    facts: Sequence[Fact] = field(default_factory=tuple)
    notes: Sequence[str] = field(default_factory=tuple)
    why: str = ""


class NotHereError(Exception):
    """This device has nothing to measure; the message says what is lacking."""


def fact(
    name: str,
    unit: str,
    samples: Values,
    *,
    note: str = "",
    case: str = "",
    at: float | int | None = None,
    at_unit: str = "",
) -> Fact:
    """The median and spread of samples, of any shape; integers stay exact.

    Raises:
        ValueError: there are no samples, or some are no numbers.
    """
    values = np.asarray(samples).reshape(-1)
    if values.size == 0:
        raise ValueError(f"{name} {case} has no samples")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} {case} has samples that are no numbers")
    p10, median, p90 = _tenths(values)
    return Fact(name, unit, int(values.size), median, p10, p90, note, case, at, at_unit)


def exact(name: str, unit: str, value: float | int, *, n: int = 1, note: str = "", case: str = "") -> Fact:
    """One value without a spread: asked for, or made of ``n`` samples together."""
    return Fact(name, unit, n, value, value, value, note, case)


def _tenths(values: npt.NDArray[Any]) -> tuple[float | int, ...]:
    """The nearest-rank p10, p50 and p90."""
    if np.issubdtype(values.dtype, np.integer):
        return tuple(part for part in nearest_rank(values.astype(np.int64)) if part is not None)
    # Ranks of the sorted values have the percentiles of the values.
    places = nearest_rank(np.arange(values.size))
    ordered = np.sort(values)
    return tuple(float(ordered[place]) for place in places if place is not None)
