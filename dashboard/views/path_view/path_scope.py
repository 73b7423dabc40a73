"""Of what the path is: launches or whole steps of a scope, and the launch that is drawn as an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from musetrace import analysis
from musetrace.analysis import CriticalPath, SampledGraphs
from musetrace.analysis.paths.launch_sample import MOST_SPANS
from musetrace.dashboard.conditions import RecordedRun
from musetrace.dashboard.open_runs import OpenRuns, RunRef
from musetrace.dashboard.scope import Option, Scope

LAUNCH, STEP = "launch", "step"
MIDDLE = "middle"
PATHS_OF = (Option(LAUNCH, "each launch"), Option(STEP, "whole steps"))


@dataclass(frozen=True)
class Example:
    """A launch of a step."""

    step: int
    launch: int
    layer: int
    kind: str

    @property
    def value(self) -> str:
        """As the address bar has it."""
        return f"{self.step}.{self.launch}"


class Examples:
    """The launches of a scope that can be drawn: those of one step."""

    def __init__(self, run: RecordedRun, scope: Scope, chosen: str = MIDDLE) -> None:
        """``chosen``: a launch by its :attr:`Example.value`; its step is taken, else the middle one."""
        arguments = scope.arguments
        found: dict[tuple[int, int], Example] = {}
        for rank in run.ranks if arguments["rank"] is None else (arguments["rank"],):
            table = run.launches(rank).select(["step", "launch", "layer", "kind", "begin_ns"])
            for row in table.filter(table["begin_ns"].to_numpy() > 0).to_pylist():
                if arguments["layer_kind"] in (None, row["kind"]) and arguments["step"] in (
                    None,
                    row["step"],
                ):
                    at = row["step"], row["launch"]
                    found.setdefault(at, Example(*at, row["layer"], row["kind"]))
        steps = sorted({at for at, _ in found})
        wanted = {example.value: example for example in found.values()}.get(chosen)
        shown = wanted.step if wanted else steps[len(steps) // 2] if steps else -1
        self.launches = [found[at] for at in sorted(found) if at[0] == shown]
        self.has_layers = not run.job_table.kernels
        self.value = chosen if wanted else MIDDLE
        middle = self.launches[len(self.launches) // 2] if self.launches else None
        self.shown = wanted or middle

    def options(self) -> list[Option]:
        """The entries of the picker."""
        each = [Option(example.value, self.words(example)) for example in self.launches]
        return [Option(MIDDLE, "the middle one"), *each]

    def words(self, example: Example) -> str:
        """A launch in words."""
        layer = f"layer {example.layer}, " if self.has_layers and example.layer >= 0 else ""
        return f"{layer}{example.kind}, launch {example.launch} of step {example.step}"


def paths_of(query: Mapping[str, str]) -> str:
    """Whether a query means launches or steps."""
    return STEP if query.get("of") == STEP else LAUNCH


def sampled(runs: OpenRuns, ref: RunRef, scope: Scope) -> SampledGraphs:
    """The launches of a scope that are replayed."""
    return runs.kept(ref, ("replayed", scope), lambda run: analysis.sampled_graphs(run, **scope.arguments))


def path_over(runs: OpenRuns, ref: RunRef, scope: Scope, of: str) -> CriticalPath:
    """The path of the launches that are replayed; or of evenly spread whole steps, of all kinds of launch."""

    def of_steps(run: RecordedRun) -> CriticalPath:
        arguments = scope.arguments
        return analysis.critical_path(
            run, rank=arguments["rank"], step=arguments["step"], whole_steps=True, most_spans=MOST_SPANS
        )

    def of_launches(run: RecordedRun) -> CriticalPath:
        return analysis.critical_path(run, sampled=sampled(runs, ref, scope))

    return runs.kept(ref, ("path", scope, of), of_steps if of == STEP else of_launches)
