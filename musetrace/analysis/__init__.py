"""Questions about a run: pure functions, a run in, an Arrow table out. No plotting, no printing.

What is asked for is here. Rooms behind it: ``timeline``, ``gaps`` (idle time, waits, stops),
``paths`` (critical path, what-if), ``engines`` (overlap, bandwidth), ``priorities`` (what to fix first),
``comparing`` (two runs), ``certainty`` (how far to trust a number), ``kept_sums`` (what the index keeps) and
``spans`` (from a run to arrays).

Beside every time that is made of stamps stands what the clock's step leaves open in it: ``X_uncertainty_ns``
for ``X_ns`` and for ``X_p10_ns`` to ``X_p90_ns``, ``X_mean_uncertainty_ns`` for ``X_mean_ns``; null where the
step is not known. ``certainty.clock_quality`` derives them, and nothing is ranked within them. Every answer's
schema metadata holds ``ignored`` (flagged spans left out), ``below_tick`` (sound spans shorter than the
clock's step) and ``tick_ns`` (that step, or ``unknown``). ``observed`` is the share of what it is about that
was recorded, at least, with the counts behind it (``certainty.observed``); where it differs by row, the rows
have a column ``observed``.
"""

from __future__ import annotations

from musetrace.analysis.answer import below_tick_spans, ignored_spans, observed, observed_counts, tick_ns
from musetrace.analysis.certainty.rank_clocks import alignment_error_ns, clocks, has_several_clocks
from musetrace.analysis.comparing.compare import Comparison, compare
from musetrace.analysis.comparing.difference import Rule
from musetrace.analysis.engines.overlap import overlap
from musetrace.analysis.engines.roofline import roofline
from musetrace.analysis.engines.utilisation import utilisation
from musetrace.analysis.gaps.arrivals import arrivals
from musetrace.analysis.gaps.attribution import attribution
from musetrace.analysis.gaps.examples import idle_examples
from musetrace.analysis.gaps.idle import idle
from musetrace.analysis.gaps.idle_after import idle_after
from musetrace.analysis.gaps.idle_blocks import idle_blocks
from musetrace.analysis.gaps.stops import stops
from musetrace.analysis.paths.critical_path import CriticalPath, critical_path
from musetrace.analysis.paths.critical_spans import critical_spans
from musetrace.analysis.paths.sampled_graphs import SampledGraphs, sampled_graphs
from musetrace.analysis.paths.what_if import what_if, what_ifs
from musetrace.analysis.priorities.findings import findings
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.timeline.busy import block_busy
from musetrace.analysis.timeline.launch_strip import launch_strip
from musetrace.analysis.timeline.launches import launches
from musetrace.analysis.timeline.op_timeline import op_timeline
from musetrace.analysis.timeline.outlier_steps import outlier_steps
from musetrace.analysis.timeline.overview import launch_times, step_times
from musetrace.analysis.timeline.ring_ahead import ring_ahead
from musetrace.analysis.timeline.step_growth import step_growth
from musetrace.analysis.timeline.step_lengths import step_lengths
from musetrace.analysis.timeline.steps import step_histogram, step_parts

__all__ = [
    "Comparison",
    "CriticalPath",
    "Rule",
    "RunLike",
    "SampledGraphs",
    "alignment_error_ns",
    "arrivals",
    "attribution",
    "below_tick_spans",
    "block_busy",
    "clocks",
    "compare",
    "critical_path",
    "critical_spans",
    "findings",
    "has_several_clocks",
    "idle",
    "idle_after",
    "idle_blocks",
    "idle_examples",
    "ignored_spans",
    "launch_strip",
    "launch_times",
    "launches",
    "observed",
    "observed_counts",
    "op_timeline",
    "outlier_steps",
    "overlap",
    "ring_ahead",
    "roofline",
    "sampled_graphs",
    "step_growth",
    "step_histogram",
    "step_lengths",
    "step_parts",
    "step_times",
    "stops",
    "tick_ns",
    "utilisation",
    "what_if",
    "what_ifs",
]
