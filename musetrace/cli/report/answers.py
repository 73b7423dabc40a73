"""The answers of a report: each question is asked once, when its answer is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from musetrace import analysis
from musetrace.cli.report.thresholds import Thresholds
from musetrace.store import Run

# A table of the whole scope, or one by kind of launch.
Answer: TypeAlias = "pa.Table | dict[str, pa.Table]"


@dataclass(frozen=True)
class Scope:
    """What a report is about; None means all."""

    kind: str | None = None
    rank: int | None = None
    step: int | None = None

    @property
    def of_whole(self) -> dict[str, int | None]:
        """The arguments of a question on all kinds of launches."""
        return {"rank": self.rank, "step": self.step}


@dataclass(frozen=True)
class Answers:
    """Asks a run, from ``thresholds`` on; ``asks`` has for each key how its question is asked.

    ``changes`` are those that a reader asked for (``analysis.what_if``).
    """

    run: Run
    scope: Scope
    thresholds: Thresholds
    asks: Mapping[str, Callable[[Answers], Answer]]
    changes: Sequence[str] = ()
    _asked: dict[str, Answer] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Answer:
        """The answer to a question. Raises AnalysisError for a scope that the run does not have."""
        if key not in self._asked:
            self._asked[key] = self.asks[key](self)
        return self._asked[key]

    def table(self, key: str) -> pa.Table:
        """An answer that is one table."""
        answer = self[key]
        assert isinstance(answer, pa.Table), key
        return answer

    def by_kind(self, key: str) -> dict[str, pa.Table]:
        """An answer that is a table for each kind of launch."""
        answer = self[key]
        assert isinstance(answer, dict), key
        return answer

    @cached_property
    def launches(self) -> pa.Table:
        """``launch_times`` of the kinds in scope."""
        table = analysis.launch_times(self.run, **self.scope.of_whole)
        kind = self.scope.kind
        return table if kind is None else table.filter(pc.equal(table["kind"], kind))

    @property
    def kinds(self) -> list[str]:
        """The kinds of launches in scope, in the order of a step; the one that was asked for in any case."""
        found: list[str] = self.launches["kind"].to_pylist()
        return found if self.scope.kind is None else [self.scope.kind]

    @cached_property
    def samples(self) -> dict[str, analysis.SampledGraphs]:
        """Launches of each kind, the same ones for all questions about what held them up."""
        rank, step = self.scope.rank, self.scope.step
        return {
            kind: analysis.sampled_graphs(self.run, layer_kind=kind, rank=rank, step=step)
            for kind in self.kinds
        }

    @cached_property
    def paths(self) -> dict[str, analysis.CriticalPath]:
        """The critical path of each kind of launch."""
        return {kind: analysis.critical_path(self.run, sampled=of) for kind, of in self.samples.items()}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of a run that has kernels of other people: their names are its kinds of launches."""
        return tuple(kernel.name for kernel in self.run.job_table.kernels)


# How an analysis function is called: with layer_kind, rank and step.
Function = Callable[..., pa.Table]


def whole(function: Function) -> Callable[[Answers], pa.Table]:
    """Asks a question on the whole scope."""

    def ask(answers: Answers) -> pa.Table:
        scope = answers.scope
        return function(answers.run, layer_kind=scope.kind, rank=scope.rank, step=scope.step)

    return ask


def each(function: Function) -> Callable[[Answers], dict[str, pa.Table]]:
    """Asks a question on each kind of launch in scope."""

    def ask(answers: Answers) -> dict[str, pa.Table]:
        rest = answers.scope.of_whole
        return {kind: function(answers.run, layer_kind=kind, **rest) for kind in answers.kinds}

    return ask
