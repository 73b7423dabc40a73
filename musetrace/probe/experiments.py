"""The experiments of each kind of device, and how they are run: one that fails does not end the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from musetrace.errors import UsageError
from musetrace.probe import clocks, cpu, delays, instructions, launches, memory, stamps, synchronization
from musetrace.probe.cpu import Cpu
from musetrace.probe.facts import Experiment, NotHereError, Outcome
from musetrace.probe.gpu import Gpu

EXPERIMENTS: dict[str, tuple[Experiment, ...]] = {
    "cuda": (
        *clocks.EXPERIMENTS,
        *delays.EXPERIMENTS,
        *stamps.EXPERIMENTS,
        *memory.EXPERIMENTS,
        *synchronization.EXPERIMENTS,
        *launches.EXPERIMENTS,
        *instructions.EXPERIMENTS,
    ),
    "cpu": cpu.EXPERIMENTS,
}
MEASURED, SKIPPED, FAILED = "measured", "skipped", "failed"


def chosen(kind: str, names: Sequence[str] | None) -> list[Experiment]:
    """The experiments of a kind of device, all of them or those named, in the order of the list.

    Raises:
        UsageError: a name is not one of them.
    """
    there = EXPERIMENTS[kind]
    if names is None:
        return list(there)
    unknown = [name for name in names if name not in {experiment.name for experiment in there}]
    if unknown:
        known = ", ".join(experiment.name for experiment in there)
        raise UsageError(f"no experiment of {kind} is called {unknown[0]!r}: there are {known}")
    return [experiment for experiment in there if experiment.name in names]


def run(
    device: Gpu | Cpu, experiments: Sequence[Experiment], show: Callable[[int, int], None] | None = None
) -> list[Outcome]:
    """Run experiments one after the other; ``show(done, total)`` is told after each."""
    # What goes wrong here goes wrong in the experiments too, and they say so.
    with suppress(RuntimeError):
        device.warm_up()
    outcomes = []
    for done, experiment in enumerate(experiments):
        if show is not None:
            show(done, len(experiments))
        outcomes.append(_run(device, experiment))
    return outcomes


def _run(device: Gpu | Cpu, experiment: Experiment) -> Outcome:
    begin_s = time.monotonic()

    def ended(state: str, why: object = "", **more: Any) -> Outcome:
        line = " ".join(str(why).split())
        seconds = time.monotonic() - begin_s
        return Outcome(experiment.name, experiment.title, state, seconds, why=line, **more)

    try:
        findings = experiment.measure(device)
    except NotHereError as lack:
        return ended(SKIPPED, lack)
    # An experiment is on its own: whatever goes wrong in it, the others are run.
    except Exception as error:
        return ended(FAILED, str(error) or type(error).__name__)
    return ended(MEASURED, facts=tuple(findings.facts), notes=tuple(findings.notes))
