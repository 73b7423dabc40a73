"""How far the clock of the stamps is from that of a trace, measured on the launches that both have.

With an offset o, a stamp at time t is at t + o in the trace. A kernel's stamps lie between its begin and its
end, so each launch bounds o: kernel begin - first stamp <= o <= kernel end - last stamp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from musetrace.errors import AnalysisError

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClockOffset:
    """``offset_ns`` is to be added to a stamp; all arrays have an entry for each launch, int64 ns.

    With any offset from ``low_ns`` to ``high_ns`` all stamps lie in their kernels; when ``low_ns`` is the
    larger, none does that for all launches, and some are moved by ``shift_ns`` on top. ``begin_ns`` is what
    each launch alone says: kernel begin - first stamp. ``lead_ns`` is how long after its kernel's begin a
    launch has its first stamp, ``tail_ns`` how long before the end its last; negative where the stamps are
    longer than their kernel.
    """

    offset_ns: int
    low_ns: int
    high_ns: int
    begin_ns: Times
    shift_ns: Times
    lead_ns: Times
    tail_ns: Times

    @property
    def spread_ns(self) -> int:
        """Between the largest and the smallest offset that a launch alone says."""
        return int(np.ptp(self.begin_ns))

    def sentences(self) -> list[str]:
        """What was measured, in words."""
        low, high = np.percentile(self.begin_ns - np.median(self.begin_ns), (5, 95))
        found = [
            f"offset {self.offset_ns:,} ns from stamps to trace, over {len(self.begin_ns)} launches",
            f"residual {low:+,.0f} to {high:+,.0f} ns (5th to 95th percentile), {self.spread_ns:,} ns in all",
            f"first stamp {np.median(self.lead_ns):,.0f} ns after its kernel's begin, last "
            f"{np.median(self.tail_ns):,.0f} ns before its end (medians)",
        ]
        if self.low_ns <= self.high_ns:
            found.append(
                f"stamps lie in their kernels for offsets up to {self.high_ns - self.offset_ns:,} ns more"
            )
        moved = int(np.count_nonzero(self.shift_ns))
        if moved:
            most = int(np.abs(self.shift_ns).max())
            found.append(
                f"{moved} launches moved by up to {most:,} ns more, so that they lie in their kernels"
            )
        outside = -int(min(self.lead_ns.min(), self.tail_ns.min()))
        if outside > 0:
            found.append(f"stamps stand out of their kernels by up to {outside:,} ns")
        return found


def measure_offset(
    kernel_begin: Times, kernel_end: Times, first_stamp: Times, last_stamp: Times
) -> ClockOffset:
    """From the times of matched launches, int64[launches] ns, of which there must be one at least.

    The offset is the median of kernel begin - first stamp, moved as little as it takes for all stamps to lie
    in their kernels. Where no offset does that, since the trace's times are not exact, it is one between the
    bounds that contradict each other, and single launches are moved.

    Raises:
        AnalysisError: the stamps of a launch are nowhere near its kernel.
    """
    begin, end = kernel_begin - first_stamp, kernel_end - last_stamp
    low, high = int(begin.max()), int(end.min())
    median = int(np.partition(begin, (len(begin) - 1) // 2)[(len(begin) - 1) // 2])
    offset = int(np.clip(median, min(low, high), max(low, high)))
    # A launch whose stamps are longer than its kernel stands out equally at both ends.
    middle = (begin + end) // 2
    own = np.clip(offset, np.minimum(begin, middle), np.maximum(end, middle))
    own = np.where(begin > end, middle, own)
    away = np.abs(own - offset)
    if (away > kernel_end - kernel_begin).any():
        worst = int(away.argmax())
        raise AnalysisError(
            f"launch {worst} lies {away[worst] / 1000:,.1f} us away from its kernel, by the clocks of the "
            "others: the trace is not one of the recorded launches"
        )
    return ClockOffset(offset, low, high, begin, own - offset, own - begin, end - own)
