"""Answers of ``musetrace.analysis`` about one scope of a run, which several callbacks of a view share."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from musetrace import analysis
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Scope


@dataclass(frozen=True)
class ScopeAnswers:
    """Asks each question once for a version of a run and a scope."""

    runs: OpenRuns
    ref: RunRef
    scope: Scope

    @property
    def run(self) -> RecordedRun:
        """The run."""
        return self.runs.run(self.ref)

    def table(self, question: str, **more: str) -> pa.Table:
        """The answer to a question, by its function's name. Raises AnalysisError as that does."""
        key = ("answer", question, self.scope, *sorted(more.items()))
        return self.runs.kept(
            self.ref, key, lambda run: getattr(analysis, question)(run, **more, **self.scope.arguments)
        )
