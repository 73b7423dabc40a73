"""What the lanes of one launch can show: the step, the launch within it, and which blocks or warps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from musetrace.analysis.spans.run_like import RunLike
from musetrace.dashboard.scope import ALL, Option, ScopeChoices
from musetrace.figures.lane_spans import LaneChoice

# Up to so many ranks, their blocks are shown together at first and each of their blocks is an entry.
_RANKS_AT_ONCE = 8
_ROWS = re.compile(r"r(?P<rank>\d{1,9})(b(?P<block>\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class LaneState:
    """What the pickers are set to: a step, a launch (its number in it), ``all``, ``r0`` or ``r0b12``."""

    step: str
    launch: str
    lanes: str

    def fields(self) -> dict[str, str]:
        """By the names that the address bar has for them."""
        return asdict(self)


@dataclass(frozen=True)
class Launch:
    """A launch of a step, as some rank recorded it."""

    number: int
    layer: int
    kind: str


class LaneChoices:
    """The steps, launches and lanes of a run."""

    def __init__(self, run: RunLike) -> None:
        """Read what the run has."""
        self._run = run
        self._scope = ScopeChoices(run)
        self._steps = self._scope.steps

    @property
    def default(self) -> LaneState:
        """A launch of the usual kind in the middle of the run."""
        return self.settle({})

    def launches(self, step: str) -> list[Launch]:
        """The stamped launches of a step, in order, over all ranks; none for ``all``."""
        found: dict[int, Launch] = {}
        for rank in self._run.ranks if step != ALL else ():
            table = self._run.launches(rank)
            chosen = (table["step"].to_numpy() == int(step)) & (table["begin_ns"].to_numpy() > 0)
            for row in table.select(["launch", "layer", "kind"]).filter(chosen).to_pylist():
                found.setdefault(row["launch"], Launch(row["launch"], row["layer"], row["kind"]))
        return [found[number] for number in sorted(found)]

    def options(self, state: LaneState) -> dict[str, list[Option]]:
        """The entries of every picker, by field."""
        return {
            "step": [Option(str(step), f"step {step}") for step in self._steps],
            "launch": launch_options(self.launches(state.step), self._scope.has_kernels),
            "lanes": self._row_options(state.lanes),
        }

    def settle(self, query: Mapping[str, str]) -> LaneState:
        """The state nearest to a query: where the run does not have a value, the default stands."""
        middle = str(self._steps[len(self._steps) // 2]) if self._steps else ALL
        step = query["step"] if query.get("step") in set(map(str, self._steps)) else middle
        launches = self.launches(step)
        launch, lanes = query.get("launch", ""), query.get("lanes", "")
        if launch not in {str(one.number) for one in launches}:
            usual = [one for one in launches if one.kind == self._scope.usual_kind] or launches
            launch = str(usual[len(usual) // 2].number) if usual else ALL
        if not self._has_rows(lanes):
            lanes = ALL if len(self._run.ranks) <= _RANKS_AT_ONCE else f"r{self._run.ranks[0]}"
        return LaneState(step, launch, lanes)

    def _has_rows(self, value: str) -> bool:
        choice = parse_rows(value)
        if choice is None:
            return False
        return choice.rank is None or (
            choice.rank in self._run.ranks and (choice.block is None or choice.block < self._run.blocks)
        )

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


def parse_rows(value: str) -> LaneChoice | None:
    """Which lanes ``all``, ``r0`` or ``r0b12`` means; None for anything else."""
    if value == ALL:
        return LaneChoice()
    match = _ROWS.fullmatch(value)
    if match is None:
        return None
    return LaneChoice(int(match["rank"]), None if match["block"] is None else int(match["block"]))


def rows_label(choice: LaneChoice) -> str:
    """A choice of lanes in words."""
    if choice.rank is None:
        return "blocks of all ranks"
    if choice.block is None:
        return f"blocks of rank {choice.rank}"
    return f"warps of rank {choice.rank}, block {choice.block}"


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
