"""A measurement of the built-in decode step, from its options to its result."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from musetrace.errors import OverheadError, RecordError, UsageError
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.decode import checked_context
from musetrace.muse.engine import Engine
from musetrace.muse.opening import chosen_device, default_capacity
from musetrace.overhead.built_in.inputs import StepInputs
from musetrace.overhead.built_in.own_code import compare_own_code
from musetrace.overhead.built_in.recording import TemporaryRecording
from musetrace.overhead.built_in.sides import BuiltInSide, EagerSide, GraphSide, Shared
from musetrace.overhead.clocks import HOST_CLOCK, Clock, CudaStopwatch, HostStopwatch, Stopwatch
from musetrace.overhead.machine_code import CodeComparison
from musetrace.overhead.measure import Progress, checked_schedule, checked_stamps
from musetrace.overhead.result import ABSENT, LAUNCHES, NULL, OFF, STEP, Facts, OverheadResult, make_result
from musetrace.overhead.schedule import TURNS_OF_BLOCK
from musetrace.overhead.turns import Schedule, run_turns
from musetrace.record.conditions import Conditions, cpu_conditions, gpu_now
from musetrace.record.process_place import process_place

RECORDED = "recorded"
WAYS = ("register", "store")
_HOST_CLOCK_OF_GPU = Clock(f"{HOST_CLOCK.name}, head start included", HOST_CLOCK.resolution_ns)


@dataclass(frozen=True)
class BuiltInOptions:
    """What to measure; None leaves the choice to the device and the model.

    ``device``, ``tp``, ``blocks``, ``layers`` and ``seed`` are as in ``EngineOptions``, ``context`` as in
    ``DecodeOptions``. ``rounds`` are 30 on a GPU and 10 on the CPU, ``steps`` of a turn 4 and 1. ``stamps``
    are the ways of stamping; the first of them is also ``recorded``, with a recorder attached.
    """

    device: str = "auto"
    model: str = "mini"
    tp: int | None = None
    blocks: int | None = None
    layers: int | None = None
    context: int | None = None
    seed: int = 0
    rounds: int | None = None
    steps: int | None = None
    warm_up: int = 2
    stamps: tuple[str, ...] = WAYS
    recorder: bool = True


def measure_built_in(options: BuiltInOptions, progress: Progress = lambda done, of: None) -> OverheadResult:
    """Measure what stamps, and a recorder, add to a step of the built-in model.

    Args:
        progress: called with (rounds done, rounds in all).

    Raises:
        UsageError: the options do not fit each other.
        DeviceError: the device cannot run it.
    """
    _refuse_other_stamps(options.stamps)
    if process_place(os.environ) is not None:
        raise UsageError(
            "overhead measures one process; start it without torchrun, with virtual ranks (--tp N)"
        )
    config = preset(options.model)
    device = chosen_device(config, options.device)
    schedule = _schedule(options, on_gpu=device == "cuda")
    engine = _opened(config, device, options)
    inputs = StepInputs(engine, checked_context(config, options.context), options.seed)
    conditions = Conditions(gpu_now if device == "cuda" else cpu_conditions)
    with ExitStack() as stack:
        recording = _attached(engine, schedule, options, stack)
        recorded = recording if isinstance(recording, TemporaryRecording) else None
        stopwatch = _stopwatch(engine)
        sides = _sides(Shared(engine, inputs, stopwatch), options.stamps, recorded)
        stamps = {side.name: count for side in sides if (count := side.count_stamps()) is not None}
        code = _own_code(engine)
        turns = run_turns(sides, schedule, conditions.note, progress)
        conditions.note()
        outcome = recording.end() if isinstance(recording, TemporaryRecording) else recording
    facts = Facts(
        subject=_described(engine, inputs, options),
        clocks={LAUNCHES: stopwatch.clock, STEP: HOST_CLOCK if device == "cpu" else _HOST_CLOCK_OF_GPU},
        stamps=stamps,
        conditions=conditions.noted,
        machine_code=code,
        recorder=outcome,
    )
    return make_result(turns, facts, schedule, options.seed)


def _refuse_other_stamps(stamps: tuple[str, ...]) -> None:
    for name in checked_stamps(stamps):
        if name not in WAYS:
            raise UsageError(f"the built-in step has no stamps {name!r}; there are {', '.join(WAYS)}")


def _schedule(options: BuiltInOptions, *, on_gpu: bool) -> Schedule:
    rounds, steps = (30, 4) if on_gpu else (10, 1)
    return checked_schedule(
        rounds if options.rounds is None else options.rounds,
        steps if options.steps is None else options.steps,
        options.warm_up,
    )


def _opened(config: MuseConfig, device: str, options: BuiltInOptions) -> Engine:
    return Engine(
        config,
        device=device,
        tp=options.tp,
        blocks=options.blocks,
        layers=options.layers,
        seed=options.seed,
        capacity=default_capacity(config, checked_context(config, options.context)),
        launches="graph" if device == "cuda" else None,
        guesses="none",
    )


def _stopwatch(engine: Engine) -> Stopwatch:
    if not isinstance(engine.device, CudaDevice):
        return HostStopwatch()
    stream = torch.cuda.ExternalStream(engine.device.stream)  # type: ignore[no-untyped-call]
    return CudaStopwatch(stream, head_start=True)


def _attached(
    engine: Engine, schedule: Schedule, options: BuiltInOptions, stack: ExitStack
) -> TemporaryRecording | str:
    """A recorder, or why there is none: the builds are measured without it too."""
    if not options.recorder:
        return "not measured: left out"
    if not options.stamps:
        return "not measured: no stamps were asked for"
    turns = schedule.warm_up + schedule.rounds * TURNS_OF_BLOCK // 2
    launches = turns * schedule.steps * len(engine.plan)
    source = engine.stamp_source(options.stamps[0])
    try:
        return stack.enter_context(TemporaryRecording(source, options.stamps[0], launches))
    except RecordError as error:
        return f"not measured: {error}"


def _sides(
    shared: Shared, stamps: tuple[str, ...], recording: TemporaryRecording | None
) -> list[BuiltInSide]:
    """Off first, then the null test, then what it is compared with."""
    on_gpu = isinstance(shared.engine.device, CudaDevice)
    kind = GraphSide if on_gpu else EagerSide
    builds = {OFF: OFF, NULL: OFF} | ({ABSENT: ABSENT} if on_gpu else {}) | {name: name for name in stamps}
    sides: list[BuiltInSide] = [kind(name, build, shared) for name, build in builds.items()]
    if recording is not None:
        sides.append(kind(RECORDED, recording.stamps, shared, recording))
    return sides


def _own_code(engine: Engine) -> tuple[CodeComparison, ...] | str:
    if not isinstance(engine.device, CudaDevice):
        return "not compared: the CPU device has no build without stamps"
    library = getattr(sys.modules["musetrace._cuda"], "__file__", None)
    if library is None:
        return "not compared: the compiled module is in no file"
    try:
        return compare_own_code(Path(library))
    except OverheadError as error:
        return f"not compared: {error}"


def _described(engine: Engine, inputs: StepInputs, options: BuiltInOptions) -> dict[str, Any]:
    device, config = engine.device, engine.config
    source = engine.stamp_source(OFF)
    fits = {}
    if isinstance(device, CudaDevice):
        fits = {build: device.fit(build) for build in (OFF, ABSENT, *options.stamps)}
    return {
        "kind": "built-in decode step",
        "model": config.name,
        "device": source.device,
        "build": source.build,
        "ranks": device.ranks,
        "tp": device.tp,
        "blocks": device.blocks,
        "launches_per_step": len(engine.plan),
        "position": inputs.position,
        "seed": options.seed,
        "layer_kernel": {
            build: {name: fit[name] for name in ("registers", "local_bytes")} for build, fit in fits.items()
        },
    }
