"""The options of ``musetrace report`` that say from when on something is told."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass
from typing import Any

from musetrace.analysis.timeline.outlier_steps import THRESHOLD
from musetrace.errors import UsageError


@dataclass(frozen=True)
class Thresholds:
    """What the questions are asked with; ``musetrace.analysis`` says what each does. As below by default."""

    shortest_ns: int = 0
    head_ns: int = 0
    least_last_share: float = 0.0
    outliers: float = THRESHOLD

    @classmethod
    def of(cls, args: argparse.Namespace) -> Thresholds:
        """As the options say. Raises UsageError for one that makes no sense."""
        for option, value in (("--shortest-idle", args.shortest_idle), ("--head", args.head)):
            if value < 0:
                raise UsageError(f"{option} {value} is less than nothing: give 0 ns or more")
        if not 0 <= args.last_share <= 100:
            raise UsageError(f"--last-share {args.last_share:g} is no share: give 0 to 100 %")
        if not 0 < args.outliers < math.inf:
            raise UsageError(f"--outliers {args.outliers:g} makes no step an outlier or every one: give 5")
        return cls(args.shortest_idle, args.head, args.last_share / 100, args.outliers)

    @property
    def of_idle(self) -> dict[str, int]:
        """Those of ``analysis.idle``."""
        return {"shortest_ns": self.shortest_ns, "head_ns": self.head_ns}

    def to_json(self) -> dict[str, Any]:
        """All of them."""
        return asdict(self)

    def sentence(self) -> str:
        """Those that are not as by default; empty when all are."""
        usual = Thresholds()
        told = {
            f"gaps below {self.shortest_ns:,} ns put together": self.shortest_ns != usual.shortest_ns,
            f"launch skew from {self.head_ns:,} ns on": self.head_ns != usual.head_ns,
            f"last in {100 * self.least_last_share:g} % or more": (
                self.least_last_share != usual.least_last_share
            ),
            f"slow steps from {self.outliers:g} deviations on": self.outliers != usual.outliers,
        }
        return ", ".join(text for text, is_other in told.items() if is_other)


def add_threshold_options(parser: argparse.ArgumentParser) -> None:
    """The options of :class:`Thresholds`."""
    usual = Thresholds()
    options = parser.add_argument_group("from when on something is told")
    options.add_argument(
        "--shortest-idle",
        type=int,
        metavar="NS",
        default=usual.shortest_ns,
        help="shorter gaps between busy jobs have the one cause 'short' (default: every gap is told)",
    )
    options.add_argument(
        "--head",
        type=int,
        metavar="NS",
        default=usual.head_ns,
        help="time before a block's first job counts as launch skew from so many ns on (default: all of it)",
    )
    options.add_argument(
        "--last-share",
        type=float,
        metavar="PERCENT",
        default=100 * usual.least_last_share,
        help="a block is named the last most often if it was in so many %% of the waits (default: 0)",
    )
    options.add_argument(
        "--outliers",
        type=float,
        metavar="X",
        default=usual.outliers,
        help="a step is slow from so many robust standard deviations above the median on "
        f"(default: {usual.outliers:g})",
    )
