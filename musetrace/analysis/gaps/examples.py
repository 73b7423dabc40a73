"""Examples of a cause of idle time: its longest pieces, and who was late."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import pyarrow as pa

from musetrace.analysis.answer import answer, tick_ns
from musetrace.analysis.certainty.clock_quality import places
from musetrace.analysis.certainty.rank_clocks import rank_times
from musetrace.analysis.gaps.attribution import attribution
from musetrace.analysis.gaps.example_places import ExamplePlaces
from musetrace.analysis.gaps.idle import cause_names
from musetrace.analysis.gaps.idle_pieces import OTHER_CAUSES
from musetrace.analysis.gaps.longest_pieces import LONGEST, MOST_KEPT, Piece, longest
from musetrace.analysis.gaps.matched_waits import MatchedWaits
from musetrace.analysis.kept_sums.question import Question, ask
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import Counted, Selection
from musetrace.errors import AnalysisError
from musetrace.job_table import JobTable

_FIELDS = [
    ("place", pa.uint32()),
    ("cause", pa.string()),
    ("op", pa.string()),
    ("wait", pa.string()),
    ("awaits", pa.string()),
    ("rank", pa.uint32()),
    ("step", pa.uint32()),
    ("launch", pa.uint32()),
    ("layer", pa.int32()),
    ("kind", pa.string()),
    ("block", pa.uint32()),
    ("at_ns", pa.int64()),
    ("begin_ns", pa.int64()),
    ("length_ns", pa.int64()),
    ("length_uncertainty_ns", pa.int64()),
    ("span", pa.uint32()),
    ("producer", pa.string()),
    ("producer_rank", pa.uint32()),
    ("producer_block", pa.uint32()),
    ("producer_span", pa.uint32()),
    ("late_ns", pa.int64()),
    ("late_uncertainty_ns", pa.int64()),
]


def idle_examples(
    run: RunLike,
    cause: str,
    *,
    layer_kind: str | None = None,
    rank: int | None = None,
    step: int | None = None,
    most: int = MOST_KEPT,
) -> pa.Table:
    """One row per example: the longest pieces of idle time of a cause, at most ``most`` (up to 10).

    ``cause`` is the name of a wait's job, or one of ``head``, ``tail``, ``load_only``, ``unlabelled``: what
    ``idle`` has in ``wait``, or in ``cause`` where that is null. Of ``place`` 1 is the longest; lengths that
    the clock cannot tell apart share a place. Of pieces of one length those come first that are first in the
    run (step, rank, launch, block, time).

    ``begin_ns`` is when the piece begins, from the launch's begin, ``at_ns`` the same on the clock of the
    run's first rank (``clocks``). ``span`` is the wait's span that covers most of the piece, by its place in
    ``run.spans(rank, step)``; null for causes that are no wait.

    ``producer`` says what is known of the job that the wait is for (``attribution`` says how it is matched):
    ``ended``, the span ``producer_span`` of ``producer_rank`` and ``producer_block`` ended last before the
    wait did; ``tied``, one of another block may have been the last; ``under_way``, none had ended, and this
    one had begun last; null where there is none. ``late_ns`` is from the wait's begin to the producer's end:
    negative where that was ready. Null while it is under way.

    Meaning: where to look at a cause in the timeline, at its worst. A longest piece is no typical one.

    Raises:
        AnalysisError: the run has no such rank, step, layer kind or cause, or ``most`` is not from 1 to 10.
    """
    if not 1 <= most <= MOST_KEPT:
        raise AnalysisError(f"{most} examples were asked for: give 1 to {MOST_KEPT}")
    causes = _causes(run.job_table, cause)
    question = Question(
        LONGEST.name, LONGEST.version, LONGEST.accumulate, partial(_finish, causes=causes, most=most)
    )
    return ask(run, question, Selection(layer_kind, rank, step))


def _causes(table: JobTable, name: str) -> list[int]:
    """The numbers of the causes of a name: kernels may have waits of one name."""
    names = [(number, job.name) for number, job in enumerate(table.jobs) if job.kind == "wait"]
    names += list(OTHER_CAUSES.items())
    found = [number for number, known in names if known == name]
    if not found:
        near = difflib.get_close_matches(name, dict.fromkeys(known for _, known in names), n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "give a wait's job, head, tail or load_only"
        raise AnalysisError(f"no cause of idle time {name!r} in this run: {hint}")
    return found


def _finish(
    run: RunLike, selection: Selection, state: State, counted: Counted, *, causes: Sequence[int], most: int
) -> pa.Table:
    pieces = longest(state, causes, most)
    tick = tick_ns(run)
    found = ExamplePlaces(run, _waits(run, selection, pieces)).of(pieces)
    place = places([-piece.length_ns for piece in pieces], [tick] * len(pieces))
    own = [one.name for one in fields(Piece) if one.name not in ("cause", "at")]
    rows: list[Mapping[str, Any]] = [
        {
            "place": number + 1,
            **cause_names(run.job_table, piece.cause),
            **{name: getattr(piece, name) for name in own},
            "length_uncertainty_ns": tick,
            **where,
        }
        for number, piece, where in zip(place, pieces, found, strict=True)
    ]
    return answer(run, _FIELDS, rows, counted)


def _waits(run: RunLike, selection: Selection, pieces: Sequence[Piece]) -> MatchedWaits:
    """The waits of the pieces, with the scopes that ``attribution`` tells of all steps."""
    waits = MatchedWaits(run, rank_times(run))
    mine = [job for job in waits.jobs if any(piece.cause == job.wait for piece in pieces)]
    if any(len(job.scopes) > 1 for job in mine):
        # Of all steps: their sums are kept.
        table = attribution(run, layer_kind=selection.layer_kind, rank=selection.rank).to_pylist()
        for job in mine:
            told = run.job_table.jobs[job.wait]
            scopes = {row["scope"] for row in table if (row["op"], row["wait"]) == (told.op, told.name)}
            if len(scopes) == 1:
                waits.scopes[job.wait] = scopes.pop()
    return waits
