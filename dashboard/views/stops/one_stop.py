"""One stop: how its arrivals are distributed, its what-if, and examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import dcc, html

from musetrace.analysis import alignment_error_ns, tick_ns
from musetrace.analysis.gaps.late_arrivals import late_arrivals
from musetrace.analysis.gaps.one_stop import EARLY, LEAD, details_of_stop, no_lead_sentence
from musetrace.dashboard.address import address, span_name
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.failure import or_sentence
from musetrace.dashboard.scope import Scope
from musetrace.dashboard.views.stops.all_stops import SEEN_NOWHERE, small_sentence
from musetrace.figures.one_stop import block_lasts_figure, block_means_figure, histogram_figure
from musetrace.figures.wording import exact_ns, plus_minus


def draw_one_stop(run: RecordedRun, scope: Scope, stop: str, theme_name: str) -> tuple[Any, ...]:
    """How one stop's arrivals are distributed: blocks and ranks by time, then blocks by their number."""
    of = scope.arguments

    def draw() -> tuple[Any, ...]:
        found = details_of_stop(run, stop=stop, layer_kind=of["layer_kind"], step=of["step"])
        bins, blocks = found.bins, found.blocks
        if bins.num_rows == 0:
            return (small_sentence(f"No block arrived at {stop} in what was chosen.", theme_name),) * 4
        why = no_lead_sentence(run) or ("" if LEAD in bins["measure"].to_pylist() else SEEN_NOWHERE)
        lasts = block_lasts_figure(blocks, theme_name)
        if tick_ns(run) is None:
            lasts = small_sentence("The clock's tick is not known: nobody is called last.", theme_name)
        error_ns = alignment_error_ns(run) or 0
        return (
            histogram_figure(bins, EARLY, theme_name),
            small_sentence(why, theme_name)
            if why
            else histogram_figure(bins, LEAD, theme_name, error_ns=error_ns),
            block_means_figure(blocks, theme_name),
            lasts,
        )

    return or_sentence(draw, lambda sentence: (small_sentence(sentence, theme_name),) * 4)


def one_note(stop: str, scope: Scope, run_index: int) -> list[Any]:
    """Which stop it is, and the way to what the launch would take without its waits."""
    href = address("path", run_index, kind=scope.kind, step=scope.step, what=f"{stop}=gone")
    link = dcc.Link("what if nobody waited there?", href=href)
    return [f"{stop}: arrivals of its sends; ", link]


def examples(run: RecordedRun, scope: Scope, stop: str, run_index: int) -> Any:
    """The latest arrivals of one step, each with the way to it in the timeline."""

    def make() -> Any:
        step = last_step(run) if scope.arguments["step"] is None else scope.arguments["step"]
        if step is None:
            return None
        table = late_arrivals(run, stop=stop, step=step, layer_kind=scope.arguments["layer_kind"])
        rows = table.to_pylist()
        if not rows:
            return None
        title = html.P(f"step {step}: where the blocks of a rank arrive furthest apart", className="note")
        return [title, html.Ul([html.Li(_example(row, run_index)) for row in rows], className="examples")]

    return or_sentence(make, lambda sentence: html.P(sentence, className="note"))


def last_step(run: RecordedRun) -> int | None:
    """The last step that every rank has; the last of any where there is none."""
    of_ranks = [set(run.step_ids(rank)) for rank in run.ranks]
    steps = set.intersection(*of_ranks) if of_ranks else set()
    return max(steps or set().union(*of_ranks), default=None)


def _example(row: Mapping[str, Any], run_index: int) -> list[Any]:
    around = max((row["to_ns"] - row["from_ns"]) // 2, 500)
    href = address(
        "timeline",
        run_index,
        ranks=row["rank"],
        span=span_name(row["rank"], row["step"], row["span"]),
        **{"from": max(row["from_ns"] - around, 0), "to": row["to_ns"] + around},
    )
    layer = f", layer {row['layer']}" if row["layer"] >= 0 else ""
    block = f"block {row['block']}"
    last = {True: f"{block} among the last", False: f"{block} last", None: f"{block} last or tied"}[
        row["is_tied"]
    ]
    apart = f"{exact_ns(row['spread_ns'])} ns {plus_minus(row['uncertainty_ns'])}"
    where = f"rank {row['rank']}, {row['kind']}{layer}, launch {row['launch']}"
    return [dcc.Link(where, href=href), f": {apart} from the first block to the last, {last}"]
