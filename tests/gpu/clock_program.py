"""One of two processes whose GPUs have clocks of their own (``test_peer_clock_device.py``).

``torchrun ... -m tests.gpu.clock_program FOLDER`` on two GPUs; on one both processes use it, and its clock is
known to be the same. A process writes a line of JSON for each scenario as it ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import musetrace
from musetrace.errors import MusetraceError
from musetrace.muse.decode import Decoder
from musetrace.muse.engine import Engine
from musetrace.muse.prompt import synthetic_prompt
from musetrace.record.peer_clock import offset_of
from tests.builders import small_table

PROCESS, PROCESSES = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER = Path(sys.argv[1])
GPUS = torch.cuda.device_count()
BUDGET_NS = 1_000_000_000
SHORT_NS = 200_000_000
TICK_NS = 32
# Enough for a comparison between them.
STEPS = 12
# A kernel that leaves no SM room for another block, as a megakernel does.
FILL_BYTES, FILL_NS = 227 * 1024, 1_500_000_000
FILL = """
extern "C" __global__ void __launch_bounds__(1024) fill(int longest_ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while ((int)(now - begin) < longest_ns);
}
"""
# Then the process ends, whatever it waits for.
LONGEST_S = 60

Outcome = dict[str, Any]


def exchange() -> Outcome:
    """The clock of process 0, ahead by so many ns on top, as process 1 sees it; five times each."""
    from musetrace import _cuda

    _cuda.set_device(PROCESS % GPUS)
    clock = _cuda.PeerClock()
    handles: list[bytes] = [b""] * PROCESSES
    dist.all_gather_object(handles, clock.handle)
    other = handles[1 - PROCESS]
    clock.reach(other)
    found: Outcome = {"handle_bytes": len(other)}
    for ahead_ns in (0, 1_000_000, -5_000_000_000):
        found[str(ahead_ns)] = [one_exchange(clock, other, ahead_ns) for _ in range(5)]
    found["given_up"] = an_exchange_that_is_given_up(clock, other)
    found["after"] = one_exchange(clock, other, 0)
    dist.barrier()
    return found


def one_exchange(clock: Any, other: bytes, ahead_ns: int) -> Outcome:
    if PROCESS == 0:
        clock.clear()
        dist.barrier()
        return {"rounds": clock.answer(other, BUDGET_NS, ahead_ns)}
    dist.barrier()
    rounds = clock.ask(other, BUDGET_NS)
    offset = offset_of(rounds, TICK_NS)
    trips = (rounds[:, 2] - rounds[:, 0]).astype(np.int64)
    return {
        "rounds": len(rounds),
        "offset_ns": offset.offset_ns,
        "error_ns": offset.error_ns,
        "trip_ns": [int(np.min(trips)), int(np.median(trips)), int(np.max(trips))],
    }


def an_exchange_that_is_given_up(clock: Any, other: bytes) -> Outcome:
    """Process 0 does not answer, and then process 1 does not ask."""
    begin = time.monotonic()
    rounds = -1
    if PROCESS == 1:
        rounds = len(clock.ask(other, SHORT_NS))
    dist.barrier()
    if PROCESS == 0:
        clock.clear()
        rounds = clock.answer(other, SHORT_NS)
    dist.barrier()
    return {"rounds": rounds, "seconds": time.monotonic() - begin}


def recorded_kernels() -> Outcome:
    """A run of no launches: what its ranks say of their clocks."""
    with musetrace.record(FOLDER / "kernels") as recorder:
        recorder.attach(small_table(), 4, name="gemm", device="cuda")
        time.sleep(0.5)
    return alignment(FOLDER / "kernels", recorder)


def compared_between() -> Outcome:
    """For 5 s, every 0.4 s; how long the program waits each time, and how far apart it goes on."""
    took_ms, went_on_ns = [], []
    with musetrace.record(FOLDER / "between") as recorder:
        recorder.attach(small_table(), 4, name="gemm", device="cuda")
        with recorder.step():
            pass
        for _ in range(12):
            time.sleep(0.4)
            dist.barrier()
            begin = time.perf_counter()
            assert recorder.compare_clocks()
            went_on_ns.append(time.monotonic_ns())
            took_ms.append(round(1000 * (time.perf_counter() - begin), 2))
    others: list[list[int]] = [[]] * PROCESSES
    dist.all_gather_object(others, went_on_ns)
    apart_us = [round(abs(one - other) / 1000, 1) for one, other in zip(*others, strict=True)]
    return {"took_ms": took_ms, "apart_us": apart_us} | alignment(FOLDER / "between", recorder)


def a_busy_gpu() -> Outcome:
    """Process 1's GPU has a kernel on all SMs when the clocks are compared; later it is idle again."""
    fill = torch.cuda._compile_kernel(FILL, "fill")  # type: ignore[attr-defined]
    fill.set_shared_memory_config(FILL_BYTES)
    with musetrace.record(FOLDER / "busy") as recorder:
        recorder.attach(small_table(), 4, name="gemm", device="cuda")
        with recorder.step():
            pass
        torch.cuda.synchronize()
        dist.barrier()
        if PROCESS == 1:
            sms = torch.cuda.get_device_properties(PROCESS % GPUS).multi_processor_count
            fill((sms, 1, 1), (1024, 1, 1), [FILL_NS], shared_mem=FILL_BYTES)
        begin = time.perf_counter()
        recorder.compare_clocks()
        busy_s = time.perf_counter() - begin
        torch.cuda.synchronize()
        dist.barrier()
        compared = [recorder.compare_clocks() for _ in range(2)]
    return {"busy_s": busy_s, "compared": compared} | alignment(FOLDER / "busy", recorder)


def recorded_model() -> Outcome:
    """Decode steps of a model whose ranks are the processes'."""
    engine = Engine("mini", device="cuda", tp=PROCESSES, guesses="none", launches="eager")
    decoder = Decoder(engine, synthetic_prompt(engine.config.vocab_size, seed=0))
    with musetrace.record(FOLDER / "model") as recorder:
        engine.attach(recorder)
        for step in range(STEPS):
            engine.wait_for_room()
            begin_ns = time.monotonic_ns()
            tokens = len(decoder.step(step))
            engine.finish_step(step, begin_ns, time.monotonic_ns(), tokens)
    engine.close()
    return alignment(FOLDER / "model", recorder)


def alignment(path: Path, recorder: musetrace.Recorder) -> Outcome:
    result = recorder.close()
    outcome: Outcome = {"verdict": result.verdict, "lost": result.lost_launches}
    if PROCESS == 0:
        run = musetrace.open(path)
        outcome["run_verdict"] = run.verdict
        outcome["alignment"] = [entry["alignment"] for entry in run.manifest["ranks"]]
        outcome["anchors"] = [entry["anchors"] for entry in run.manifest["ranks"]]
    return outcome


def main() -> None:
    signal.alarm(LONGEST_S)
    torch.cuda.set_device(PROCESS % GPUS)
    dist.init_process_group("gloo")
    on_two = [exchange, recorded_kernels, compared_between, a_busy_gpu, recorded_model]
    scenarios: list[Callable[[], Outcome]] = on_two if GPUS >= PROCESSES else [recorded_kernels]
    for scenario in scenarios:
        outcome: Outcome = {"scenario": scenario.__name__}
        try:
            outcome |= scenario()
        except (MusetraceError, RuntimeError) as error:
            outcome["error_line"] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        with (FOLDER / f"outcomes.{PROCESS}").open("a") as file:
            file.write(json.dumps(outcome) + "\n")
        if "error_line" in outcome:
            break


if __name__ == "__main__":
    main()
