"""Questions about a run: pure functions, a run in, an Arrow table out. No plotting, no printing.

Every answer's schema metadata holds ``ignored`` (flagged spans left out) and ``tick_ns`` (step of the clock).
"""

from __future__ import annotations

from musetrace.analysis.answer import ignored_spans, tick_ns
from musetrace.analysis.busy import block_busy
from musetrace.analysis.op_timeline import op_timeline
from musetrace.analysis.overview import launch_times, step_times
from musetrace.analysis.ring_ahead import ring_ahead
from musetrace.analysis.run_like import RunLike
from musetrace.analysis.stops import stops

__all__ = [
    "RunLike",
    "block_busy",
    "ignored_spans",
    "launch_times",
    "op_timeline",
    "ring_ahead",
    "step_times",
    "stops",
    "tick_ns",
]
