"""Over what a view's numbers are: a kind of launch, ranks, steps. The pickers that most views share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypedDict

from musetrace.analysis import tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns, sum_uncertainty_ns, told_apart
from musetrace.analysis.spans.run_like import RunLike

ALL = "all"


class ScopeArguments(TypedDict):
    """As the functions of ``musetrace.analysis`` take them; None for all."""

    layer_kind: str | None
    rank: int | None
    step: int | None


@dataclass(frozen=True)
class Option:
    """One entry of a picker."""

    value: str
    label: str


@dataclass(frozen=True)
class Scope:
    """What the pickers are set to, as the texts that they hold."""

    kind: str = ALL
    rank: str = ALL
    step: str = ALL

    @property
    def arguments(self) -> ScopeArguments:
        """For a function of ``musetrace.analysis``."""
        return {
            "layer_kind": None if self.kind == ALL else self.kind,
            "rank": None if self.rank == ALL else int(self.rank),
            "step": None if self.step == ALL else int(self.step),
        }

    def fields(self) -> dict[str, str]:
        """By the names that the address bar has for them."""
        return asdict(self)


class ScopeChoices:
    """The kinds, ranks and steps of a run."""

    def __init__(self, run: RunLike) -> None:
        """Read the kinds and steps over all ranks."""
        # Of other people: the kinds of launches are their names.
        self.has_kernels = bool(run.job_table.kernels)
        self.ranks = tuple(run.ranks)
        time_ns: Counter[str] = Counter()
        launches: Counter[str] = Counter()
        for rank in run.ranks:
            table = run.launches(rank).select(["kind", "begin_ns", "end_ns"])
            for row in table.filter(table["begin_ns"].to_numpy() > 0).to_pylist():
                time_ns[row["kind"]] += row["end_ns"] - row["begin_ns"]
                launches[row["kind"]] += 1
        self.kinds = tuple(time_ns)
        self.usual_kind = _longest(time_ns, launches, tick_ns(run))
        self.steps = tuple(sorted({step for rank in run.ranks for step in run.step_ids(rank)}))
        self.default = Scope(self.usual_kind)

    def options(self) -> dict[str, list[Option]]:
        """The entries of every picker, by field."""
        return {
            "kind": [
                Option(ALL, "all kernels" if self.has_kernels else "all kinds"),
                *(Option(kind, kind) for kind in self.kinds),
            ],
            "rank": [Option(ALL, "all ranks"), *(Option(str(rank), f"rank {rank}") for rank in self.ranks)],
            "step": [Option(ALL, "all steps"), *(Option(str(step), f"step {step}") for step in self.steps)],
        }

    def settle(self, query: Mapping[str, str], default: Scope | None = None) -> Scope:
        """The scope of a query: where the run does not have a value, the default stands."""
        has = {"kind": {ALL, *self.kinds}, "rank": {ALL, *map(str, self.ranks)}}
        has["step"] = {ALL, *map(str, self.steps)}
        fallback = (default or self.default).fields()
        return Scope(
            **{name: query[name] if query.get(name) in real else fallback[name] for name, real in has.items()}
        )


def _longest(time_ns: Mapping[str, int], launches: Mapping[str, int], tick: int | None) -> str:
    """The kind where most of the time goes; the first of those that the clock does not tell from it."""
    longest = max(time_ns, key=time_ns.__getitem__, default=ALL)
    if tick is None:
        return longest  # it is only shown first
    for kind in time_ns:
        sums = [sum_uncertainty_ns(tick, launches[one]) for one in (kind, longest)]
        if not told_apart(time_ns[kind], time_ns[longest], combined_ns(*sums)):
            return kind
    return longest
