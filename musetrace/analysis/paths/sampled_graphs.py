"""The graphs of a bounded number of launches, for several questions about the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from musetrace.analysis.paths.launch_graph import LaunchGraph, launch_graphs
from musetrace.analysis.paths.launch_sample import MOST_SPANS, launch_sample
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection


@dataclass(frozen=True)
class SampledGraphs:
    """``graphs`` of launches in ``scope``, of which there are ``of_launches`` in ``steps`` steps."""

    scope: Selection
    graphs: list[LaunchGraph]
    counted: Counted
    of_launches: int
    steps: int


def sampled_graphs(
    run: RunLike,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    most_spans: int = MOST_SPANS,
) -> SampledGraphs:
    """Graphs of launches with about ``most_spans`` spans in all, spread evenly over the scope.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    scope, counted = Selection(layer_kind, rank, step), Counted()
    sample = launch_sample(run, scope, most_spans)
    graphs = list(launch_graphs(run, scope, counted, sample.launches))
    return SampledGraphs(scope, graphs, counted, sample.of, sample.steps)
