"""Questions whose answers are made of sums, so that the index can keep the sums (``cubes``).

To add a question, write its file with

* ``accumulate(run, spans)``: one step, the ``StepSpans`` of all ranks in scope, in; one ``State`` for each of
  them out, in the same order. A state holds integer sums by integer keys. Values that a median is wanted of
  are counted by value, ``state.add("length", row, values)``; what an uncertainty is made of is counted by
  launch, ``state.add_launches("length", row, launch_id)``. Of a thing that concerns several ranks (who is
  last at a stop) each rank's state gets its own part, or one rank's gets it all.
* ``finish(run, selection, state, counted)``: the sum of the states of the scope in, the answer out. All that
  is no sum (shares, medians, names, clocks) belongs here.
* ``X = Question("x", version, accumulate, finish)`` and ``def x(run, *, layer_kind=None, rank=None,
  step=None): return ask(run, X, Selection(layer_kind, rank, step))``;

and add ``X`` to the list in ``cubes``. Tests in ``tests/unit/test_cubes.py`` then check that answers from the
kept sums equal those from spans, in every scope. Raise ``version`` whenever ``accumulate`` changes.

``all_ranks``: the state of one rank needs the spans of the others. ``by_kind``: the sum over kinds of
launches is what all launches together give; where it is not, states are of all kinds, and ``finish`` tells
what is asked about. ``is_kept`` is False for a question that has more arguments than the scope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from musetrace.analysis.kept_sums.state import State, merged, of_step
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import (
    Counted,
    Selection,
    StepSpans,
    check_scope,
    chosen_ranks,
    spans_by_step,
)

Accumulate = Callable[[RunLike, Sequence[StepSpans]], list[State]]
Finish = Callable[[RunLike, Selection, State, Counted], pa.Table]


@dataclass(frozen=True)
class Sums:
    """Sums of which questions are answered; see the module. ``name`` is a file's name in the index."""

    name: str
    version: int
    accumulate: Accumulate
    all_ranks: bool = field(default=False, kw_only=True)
    by_kind: bool = field(default=True, kw_only=True)
    is_kept: bool = field(default=True, kw_only=True)

    def needed(self, selection: Selection) -> Selection:
        """The spans that the states of a scope are made of."""
        kind = selection.layer_kind if self.by_kind else None
        return Selection(kind, None if self.all_ranks else selection.rank, selection.step)


@dataclass(frozen=True)
class Question(Sums):
    """Sums and the answer that is made of them."""

    finish: Finish


def ask(run: RunLike, question: Question, selection: Selection) -> pa.Table:
    """Answer from the sums that the index keeps, else from the spans.

    Raises:
        AnalysisError: the run has no such rank, step or layer kind.
    """
    from musetrace.analysis.kept_sums.cubes import kept

    check_scope(run, selection)
    found = kept(run, question, selection)
    state, counted = from_spans(run, question, selection) if found is None else found
    return question.finish(run, selection, state, counted)


def from_spans(run: RunLike, question: Sums, selection: Selection) -> tuple[State, Counted]:
    """The state of a scope, made of its spans one step at a time."""
    needed = question.needed(selection)
    chosen, counted, total = chosen_ranks(run, selection), Counted(), RunningState()
    for spans in spans_by_step(run, needed, counted):
        states = question.accumulate(run, spans)
        total.add(of_step([state for one, state in zip(spans, states, strict=True) if one.rank in chosen]))
    return total.state(), counted


@dataclass
class RunningState:
    """The sum of many states. Merges them when they have become as large as what there is."""

    _whole: State = field(default_factory=State)
    _parts: list[State] = field(default_factory=list)
    _waiting: int = 0

    def add(self, state: State) -> None:
        """Add the state of one more step."""
        self._parts.append(state)
        self._waiting += _entries(state)
        if self._waiting > _entries(self._whole):
            self._merge()

    def state(self) -> State:
        """The sum so far."""
        self._merge()
        return self._whole

    def _merge(self) -> None:
        self._whole = merged([self._whole, *self._parts])
        self._parts, self._waiting = [], 0


def _entries(state: State) -> int:
    return sum(len(tally) for of in (state.sums, state.squares) for tally in of.values())
