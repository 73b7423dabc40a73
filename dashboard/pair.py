"""Two of the runs of the page, and their comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from musetrace import analysis
from musetrace.analysis import Comparison
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import ALL, ScopeChoices
from musetrace.errors import AnalysisError


@dataclass(frozen=True)
class Pair:
    """Run A, and run B that may be faster or slower, by their places on the command line."""

    a: int = 0
    b: int = 1

    @classmethod
    def of(cls, runs: OpenRuns, a: object, b: object) -> Pair:
        """The pair of two texts; where one is no run, the first two stand."""
        places = {str(place): place for place in range(len(runs.names))}
        return cls(places.get(str(a), 0), places.get(str(b), min(1, len(places) - 1)))

    def refs(self, runs: OpenRuns) -> tuple[RunRef, RunRef]:
        """Both runs, as they were opened last."""
        return runs.ref(self.a), runs.ref(self.b)


def compared(runs: OpenRuns, pair: Pair, kind: str) -> Comparison:
    """``musetrace.analysis.compare`` of a pair, of a kind of launch or of all.

    Raises:
        AnalysisError: the runs cannot be compared.
    """
    ref_a, ref_b = pair.refs(runs)
    if ref_a == ref_b:
        raise AnalysisError(f"A and B are both {runs.names[pair.a]}: choose another run for one of them")

    def compare(a: RecordedRun) -> Comparison:
        return analysis.compare(a, runs.run(ref_b), layer_kind=None if kind == ALL else kind)

    return runs.kept(ref_a, ("compare", ref_b, kind), compare)


def shared_kinds(runs: OpenRuns, pair: Pair) -> tuple[str, ...]:
    """The kinds of launch that both runs have, in the order of A."""
    of_a, of_b = (runs.kept(ref, ScopeChoices, ScopeChoices).kinds for ref in pair.refs(runs))
    return tuple(kind for kind in of_a if kind in of_b)


def usual_kind(runs: OpenRuns, pair: Pair) -> str:
    """The kind whose op timelines are shown where none is chosen: A's usual one, if B has it."""
    usual = runs.kept(pair.refs(runs)[0], ScopeChoices, ScopeChoices).usual_kind
    shared = shared_kinds(runs, pair)
    return usual if usual in shared or not shared else shared[0]


def chosen_kind(runs: OpenRuns, pair: Pair, query: Mapping[str, str]) -> str:
    """The kind of a query, ALL where not both runs have it."""
    kind = query.get("kind", ALL)
    return kind if kind in shared_kinds(runs, pair) else ALL
