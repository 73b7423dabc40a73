"""Which kernel of a trace is which launch of a run: by name and by order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from musetrace.errors import AnalysisError
from musetrace.export.chrome_trace import TracedKernel, function_name
from musetrace.store.run import Run

_SHOWN_NAMES = 8


class LaunchTimes(NamedTuple):
    """Of a launch, in ns: its kernel on the trace's clock, its first and last stamp on that of the stamps."""

    kernel_begin_ns: int
    kernel_end_ns: int
    first_stamp_ns: int
    last_stamp_ns: int


@dataclass(frozen=True)
class MatchedLaunch:
    """A launch of a run and its times; one that left no stamps is not ``stamped``."""

    kernel: str
    step: int
    launch: int
    times: LaunchTimes

    @property
    def stamped(self) -> bool:
        """Whether the launch left stamps."""
        return self.times.last_stamp_ns > 0


class _Launch(NamedTuple):
    kernel: str
    step: int
    launch: int
    begin_ns: int
    end_ns: int


def match_launches(
    run: Run, rank: int, traced: Sequence[TracedKernel], names: Mapping[str, str], device: int | None
) -> list[MatchedLaunch]:
    """Every launch of a rank with its kernel, kernel after kernel, each in order of time.

    ``names`` maps names of the run to function names of the trace; without one they are the same.

    Raises:
        AnalysisError: there are more or fewer launches of a kernel than the trace has, or kernels of a name
            on several GPUs and no ``device`` that says which.
    """
    launches = list(_launches(run, rank))
    matched = []
    for kernel in dict.fromkeys(launch.kernel for launch in launches):
        own = [launch for launch in launches if launch.kernel == kernel]
        events = _kernels_named(traced, names.get(kernel, kernel), device)
        if len(own) != len(events):
            raise AnalysisError(_difference(run, kernel, len(own), len(events), traced))
        matched += [
            MatchedLaunch(
                kernel,
                launch.step,
                launch.launch,
                LaunchTimes(event.begin_ns, event.end_ns, launch.begin_ns, launch.end_ns),
            )
            for launch, event in zip(_in_order(own), events, strict=True)
        ]
    return matched


def _launches(run: Run, rank: int) -> Iterator[_Launch]:
    columns = ("kind", "step", "launch", "begin_ns", "end_ns")
    for row in run.launches(rank).select(columns).to_pylist():
        yield _Launch(*(row[column] for column in columns))


def _in_order(launches: list[_Launch]) -> list[_Launch]:
    """By time; one without stamps keeps its place behind the launch before it."""
    keys, latest = [], 0
    for launch in launches:
        latest = launch.begin_ns or latest
        keys.append(latest)
    return [launches[at] for at in sorted(range(len(launches)), key=keys.__getitem__)]


def _kernels_named(traced: Sequence[TracedKernel], name: str, device: int | None) -> list[TracedKernel]:
    found = [kernel for kernel in traced if name in (kernel.name, function_name(kernel.name))]
    if device is not None:
        return [kernel for kernel in found if kernel.device == device]
    devices = sorted({str(kernel.device) for kernel in found})
    if len(devices) > 1:
        raise AnalysisError(f"kernels {name} of the trace ran on devices {', '.join(devices)}: say which one")
    return found


def _difference(run: Run, kernel: str, launches: int, kernels: int, traced: Sequence[TracedKernel]) -> str:
    if kernels == 0:
        names = list(dict.fromkeys(function_name(one.name) for one in traced))
        shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
        return f"the trace has no kernel {kernel}; it has {shown or 'none at all'}: say its function by names"
    lost = run.losses["lost_launches"]
    cause = f" (the recorder lost {lost})" if lost else ""
    return (
        f"the run has {launches} launches of {kernel}{cause}, the trace {kernels}: profile exactly the "
        "launches that are recorded"
    )
