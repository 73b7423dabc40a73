"""A measurement from its options to its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from musetrace.errors import UsageError
from musetrace.overhead.clocks import CudaStopwatch, Stopwatch
from musetrace.overhead.program import Make, ProgramSide, make_step, require_torch_cuda, stopwatch_for
from musetrace.overhead.result import NULL, OFF, STEP, Facts, OverheadResult, make_result
from musetrace.overhead.stamp_count import StampCount
from musetrace.overhead.turns import Schedule, run_turns
from musetrace.record.conditions import Conditions, cpu_conditions, gpu_now

Progress = Callable[[int, int], None]

_MOST = 10_000


def checked_schedule(rounds: int, steps: int, warm_up: int) -> Schedule:
    """Raises UsageError for numbers that make no sense."""
    for name, value, least in (("rounds", rounds, 1), ("steps", steps, 1), ("warm-up", warm_up, 0)):
        if not least <= value <= _MOST:
            raise UsageError(f"--{name} must be at least {least} and at most {_MOST}, not {value}")
    return Schedule(rounds, steps, warm_up)


def checked_stamps(stamps: Sequence[str]) -> tuple[str, ...]:
    """Raises UsageError for ways of stamping that cannot be measured beside ``off``."""
    names = tuple(stamps)
    if len(set(names)) != len(names) or not all(names) or {OFF, NULL} & set(names):
        raise UsageError(
            f"stamps {', '.join(names)} cannot be measured: name each way once, and leave out off, which all "
            "are compared with"
        )
    return names


def measure_program(
    make: Make,
    *,
    rounds: int,
    steps: int,
    warm_up: int,
    stamps: Sequence[str],
    device: str,
    seed: int,
    name: str = "",
    stopwatch: Stopwatch | None = None,
    progress: Progress = lambda done, of: None,
) -> OverheadResult:
    """See :func:`musetrace.overhead`.

    Args:
        name: of the function, for the result.
        stopwatch: what times all steps; None for the device's own.
        progress: called with (rounds done, rounds in all).
    """
    schedule, ways = checked_schedule(rounds, steps, warm_up), checked_stamps(stamps)
    if device == "cuda":
        require_torch_cuda()
    made = {way: make_step(make, way) for way in (OFF, *ways)}
    watches = {way: stopwatch or stopwatch_for(device, step.stream) for way, step in made.items()}
    sides = [
        ProgramSide(side, way, made[way], watches[way])
        for side, way in ((OFF, OFF), (NULL, OFF), *((way, way) for way in ways))
    ]
    conditions = Conditions(gpu_now if isinstance(watches[OFF], CudaStopwatch) else cpu_conditions)
    turns = run_turns(sides, schedule, conditions.note, progress)
    conditions.note()
    facts = Facts(
        subject={"kind": "program", "call": name or getattr(make, "__qualname__", repr(make))},
        clocks={STEP: watches[OFF].clock},
        stamps={way: StampCount(all=of[1], slowest=of[0]) for way in ways if (of := made[way].stamps)},
        conditions=conditions.noted,
        machine_code="not compared: give --cubins OFF ABSENT to compare two files",
        recorder="not measured: the program attaches a recorder itself where it wants one",
    )
    return make_result(turns, facts, schedule, seed)
