"""What a run has to choose from: the entries of the op view's pickers, and which values are real."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from musetrace.analysis import tick_ns
from musetrace.analysis.certainty.clock_quality import combined_ns, sum_uncertainty_ns, told_apart
from musetrace.analysis.spans.run_like import RunLike
from musetrace.dashboard.op_state import (
    ALL,
    FIELDS,
    OpState,
    parse_query,
    parse_rows,
    rows_label,
    write_query,
)
from musetrace.figures.lane_spans import LaneChoice

# Up to so many ranks, their blocks are shown together at first and each of their blocks is an entry.
_RANKS_AT_ONCE = 8


@dataclass(frozen=True)
class Option:
    """One entry of a picker."""

    value: str
    label: str


@dataclass(frozen=True)
class Launch:
    """A launch of a step, as some rank recorded it."""

    number: int
    layer: int
    kind: str


class Choices:
    """The kinds, ranks, steps and launches of a run. Its states have only values that the run has."""

    def __init__(self, run: RunLike) -> None:
        """Read the kinds and steps over all ranks."""
        self._run = run
        # Of other people: the kinds of launches are their names.
        self._has_kernels = bool(run.job_table.kernels)
        time_ns: Counter[str] = Counter()
        launches: Counter[str] = Counter()
        for rank in run.ranks:
            table = run.launches(rank).select(["kind", "begin_ns", "end_ns"])
            for row in table.filter(table["begin_ns"].to_numpy() > 0).to_pylist():
                time_ns[row["kind"]] += row["end_ns"] - row["begin_ns"]
                launches[row["kind"]] += 1
        self._kinds = tuple(time_ns)
        self._usual_kind = _longest(time_ns, launches, tick_ns(run))
        self._steps = tuple(sorted({step for rank in run.ranks for step in run.step_ids(rank)}))
        lane_step = str(self._steps[len(self._steps) // 2]) if self._steps else ALL
        rows = ALL if len(run.ranks) <= _RANKS_AT_ONCE else f"r{run.ranks[0]}"
        self.default = OpState(self._usual_kind, ALL, ALL, lane_step, self._usual_launch(lane_step), rows)

    def launches(self, step: str) -> list[Launch]:
        """The stamped launches of a step, in order, over all ranks; none for ``all``."""
        found: dict[int, Launch] = {}
        for rank in self._run.ranks if step != ALL else ():
            table = self._run.launches(rank)
            chosen = (table["step"].to_numpy() == int(step)) & (table["begin_ns"].to_numpy() > 0)
            for row in table.select(["launch", "layer", "kind"]).filter(chosen).to_pylist():
                found.setdefault(row["launch"], Launch(row["launch"], row["layer"], row["kind"]))
        return [found[number] for number in sorted(found)]

    def _usual_launch(self, step: str) -> str:
        launches = self.launches(step)
        usual = [launch for launch in launches if launch.kind == self._usual_kind] or launches
        return str(usual[len(usual) // 2].number) if usual else ALL

    def options(self, state: OpState) -> dict[str, list[Option]]:
        """The entries of every picker, by field."""
        steps = [Option(str(step), f"step {step}") for step in self._steps]
        return {
            "kind": [
                Option(ALL, "all kernels" if self._has_kernels else "all kinds"),
                *(Option(kind, kind) for kind in self._kinds),
            ],
            "rank": [
                Option(ALL, "all ranks"),
                *(Option(str(rank), f"rank {rank}") for rank in self._run.ranks),
            ],
            "step": [Option(ALL, "all steps"), *steps],
            "lane_step": steps,
            "launch": launch_options(self.launches(state.lane_step), self._has_kernels),
            "rows": self._row_options(state.rows),
        }

    def _row_options(self, chosen: str) -> list[Option]:
        run = self._run
        choices = [LaneChoice(), *(LaneChoice(rank) for rank in run.ranks)]
        some_ranks = run.ranks[:_RANKS_AT_ONCE]
        choices += [LaneChoice(rank, block) for rank in some_ranks for block in range(run.blocks)]
        options = [Option(_rows_value(choice), rows_label(choice)) for choice in choices]
        # A link may name a block of a rank whose blocks are not entries.
        choice = parse_rows(chosen)
        if choice is not None and chosen not in {option.value for option in options}:
            options.append(Option(chosen, rows_label(choice)))
        return options

    def settle(self, wanted: Mapping[str, str]) -> OpState:
        """The state nearest to ``wanted``: where the run does not have a value, the default stands."""
        lane_step = wanted.get("lane_step", "")
        if lane_step not in map(str, self._steps):
            lane_step = self.default.lane_step
        usual = self._usual_launch(lane_step)
        has = {
            "kind": {ALL, *self._kinds},
            "rank": {ALL, *map(str, self._run.ranks)},
            "step": {ALL, *map(str, self._steps)},
            "launch": {str(launch.number) for launch in self.launches(lane_step)},
            "rows": {value for value in (wanted.get("rows", ""),) if self._has_rows(value)},
        }
        values = {"lane_step": lane_step}
        for name, real in has.items():
            fallback = usual if name == "launch" else getattr(self.default, name)
            values[name] = wanted[name] if wanted.get(name) in real else fallback
        return OpState(**values)

    def _has_rows(self, value: str) -> bool:
        choice = parse_rows(value)
        if choice is None:
            return False
        return choice.rank is None or (
            choice.rank in self._run.ranks and (choice.block is None or choice.block < self._run.blocks)
        )

    def parse(self, search: str | None) -> OpState:
        """The state that an address bar's query asks for."""
        return self.settle(parse_query(search))

    def query(self, state: OpState) -> str:
        """The query of a state; what a link without it would show anyway is left out of it."""
        implied = self.settle({"lane_step": state.lane_step})
        leave_out = [name for name in FIELDS if getattr(state, name) == getattr(implied, name)]
        if state.lane_step != self.default.lane_step:
            leave_out.remove("lane_step")
        return write_query(state, leave_out)


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


def launch_options(launches: Iterable[Launch], of_kernels: bool = False) -> list[Option]:
    """The entries of the picker of launches; one that is alone of its kind goes by the kind."""
    form = "{kind}, launch {layer}" if of_kernels else "layer {layer}, {kind}"
    launches = list(launches)
    counts = Counter(launch.kind for launch in launches)
    return [
        Option(
            str(launch.number),
            launch.kind if counts[launch.kind] == 1 else form.format(kind=launch.kind, layer=launch.layer),
        )
        for launch in launches
    ]


def _rows_value(choice: LaneChoice) -> str:
    if choice.rank is None:
        return ALL
    return f"r{choice.rank}" if choice.block is None else f"r{choice.rank}b{choice.block}"
