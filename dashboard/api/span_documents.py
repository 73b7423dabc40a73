"""Spans as JSON: short where they are a line of a list, whole where one is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from musetrace.analysis import tick_ns
from musetrace.analysis.spans.selection import LaunchColumns
from musetrace.analysis.windows.flows import LaunchFlows, Producer, Related
from musetrace.analysis.windows.search import FoundSpan
from musetrace.dashboard.api.refusals import NotThereError
from musetrace.dashboard.api.timelines import RunTimeline
from musetrace.figures.wording import many
from musetrace.store.decode import Flag

SpanName = tuple[int, int, int]  # rank, step, and the place in run.spans(rank, step)


def short_spans(of: RunTimeline, names: Sequence[SpanName]) -> list[dict[str, Any]]:
    """Some spans, in the same order."""
    batches = {one: of.run.spans(*one) for one in dict.fromkeys(name[:2] for name in names)}
    return [_short(of, batches[name[0], name[1]], name) for name in names]


def _short(of: RunTimeline, batch: pa.RecordBatch, name: SpanName) -> dict[str, Any]:
    rank, step, span = name
    row = batch.slice(span, 1).to_pylist()[0]
    begin = int(of.timeline.axis.on_axis(rank, np.array([_base_ns(of, rank, step) + row["begin"]]))[0])
    return {
        "rank": rank,
        "step": step,
        "id": span,
        "block": row["block"],
        "warp": row["warp"],
        "sm": row.get("sm") if of.sms() is not None else None,
        "job": row["job"],
        "begin": begin,
        "end": begin + row["dur"],
    }


def hit_documents(of: RunTimeline, hits: Sequence[FoundSpan], *, with_sm: bool) -> list[dict[str, Any]]:
    """Spans that were found, short; their SM is None unless it is asked for, as it has to be read."""
    sms = [one["sm"] for one in short_spans(of, [_found_name(hit) for hit in hits])] if with_sm else []
    return [
        {
            "rank": hit.at.rank,
            "step": hit.at.step,
            "id": hit.at.id,
            "block": hit.block,
            "warp": hit.warp,
            "sm": sms[place] if with_sm else None,
            "job": hit.job,
            "begin": hit.at.begin_ns,
            "end": hit.at.begin_ns + hit.dur_ns,
        }
        for place, hit in enumerate(hits)
    ]


def _found_name(found: FoundSpan) -> SpanName:
    return found.at.rank, found.at.step, found.at.id


def _base_ns(of: RunTimeline, rank: int, step: int) -> int:
    steps = of.timeline.axis.ranks[rank]
    place = steps.place_of(step)
    assert place is not None
    return int(steps.base_ns[place])


def span_document(of: RunTimeline, name: SpanName) -> dict[str, Any]:
    """One span, what it waited for and who waited for it."""
    rank, step, span = name
    batch = checked(of, name)
    row = batch.slice(span, 1).to_pylist()[0]
    flows = LaunchFlows(of.run, of.timeline.axis, step, row["launch"], of.scopes(step))
    made, consumers = flows.producer(rank, span), flows.consumers(rank, span)
    begin_ns = _base_ns(of, rank, step) + row["begin"]
    whole = {
        **_short(of, batch, name),
        "launch": row["launch"],
        "layer": _launch(of, rank, step, row["launch"])[0],
        "kind": _launch(of, rank, step, row["launch"])[1],
        "iteration": row.get("iteration", 0),
        "payload": row["payload"] if row.get("has_payload") else None,
        "flag": row["flag"],
        "flag_name": _flag_name(row["flag"]),
        "begin_ns": str(begin_ns),
        "end_ns": str(begin_ns + row["dur"]),
        "dur_ns": row["dur"],
        "uncertainty_ns": tick_ns(of.run),
    }
    return {
        "span": whole,
        "producer": _producer(of, made),
        "producer_why": made.reason,
        "producer_note": _note(of, made),
        "consumers": short_spans(of, [_name(one) for one in consumers.spans]),
        "consumers_total": consumers.total,
    }


def checked(of: RunTimeline, name: SpanName) -> pa.RecordBatch:
    """The spans of the step that a span is of. Raises NotThereError for one that there is not."""
    rank, step, span = name
    steps = of.timeline.axis.ranks.get(rank)
    if steps is not None and steps.place_of(step) is not None:
        batch = of.run.spans(rank, step)
        if span < batch.num_rows:
            return batch
    raise NotThereError(f"this run has no span {span} in step {step} of rank {rank}")


def _name(span: Related) -> SpanName:
    return span.rank, span.step, span.id


def _producer(of: RunTimeline, made: Producer) -> dict[str, Any] | None:
    if made.span is None:
        return None
    return {
        **short_spans(of, [_name(made.span)])[0],
        "late_by_ns": made.late_by_ns,
        "scope": made.scope,
        "tied": made.tied,
        "under_way": made.under_way,
        "error_ns": made.error_ns,
    }


def _note(of: RunTimeline, made: Producer) -> str:
    """What is open about a producer."""
    if made.span is None:
        return ""
    notes = []
    if made.under_way:
        notes.append("None had ended yet: the wait was for a piece of this one.")
    if made.tied:
        notes.append("The clock does not tell whether another block's ended last.")
    if made.scope == "ranks" and of.run.losses.get("missing_ranks"):
        missing = len(of.run.losses["missing_ranks"])
        notes.append(f"{many(missing, 'rank')} of the run {'is' if missing == 1 else 'are'} missing.")
    return " ".join(notes)


def _launch(of: RunTimeline, rank: int, step: int, launch: int) -> tuple[int, str]:
    """Layer and kind of a launch."""
    columns = of.once(("launches", rank), lambda: LaunchColumns.of(of.run.launches(rank)))
    first, past = np.searchsorted(columns.step, (step, step + 1))
    at = first + int(np.searchsorted(columns.launch[first:past], launch))
    if at == past or columns.launch[at] != launch:
        return -1, ""
    return int(columns.layer[at]), str(columns.kind[at])


def _flag_name(flag: int) -> str:
    known = {int(one) for one in Flag}
    return Flag(flag).name.lower().replace("_", " ") if flag in known else f"flag {flag}"
