"""One of two processes that share `mini` on two GPUs, where one rank is late on purpose by some us.

``torchrun --standalone --nproc-per-node 2 -m tests.gpu.delayed_rank_program FOLDER``. Before each layer both
ranks run a kernel of one thread in the stream of the launches; on the late rank it waits. Step s is case s
modulo the number of cases, so that what drifts hits all cases alike. The run is FOLDER/run.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import musetrace
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.engine import Engine
from musetrace.muse.peer_device import PeerDevice
from musetrace.record.collector import Collector

# The late rank, and by how much in ns.
CASES = ((1, 0), (1, 2_000), (1, 5_000), (1, 20_000), (0, 2_000), (0, 5_000), (0, 20_000))
# The first warms up.
ROUNDS = 11
BLOCKS = 32
# The host queues a step's launches meanwhile, so that none of them waits for it.
HEAD_START_NS = 12_000_000
# Then the process ends, whatever it waits for.
LONGEST_S = 60
WAIT = """
extern "C" __global__ void wait_ns(int longest_ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while ((int)(now - begin) < longest_ns);
}
"""

Wait = Callable[[int], None]


def wait_in_stream_of(device: CudaDevice) -> Wait:
    """Queues a wait of so many ns, to a step of the clock."""
    kernel: Any = torch.cuda._compile_kernel(WAIT, "wait_ns")  # type: ignore[attr-defined]
    stream = torch.cuda.ExternalStream(device.stream)

    def wait(longest_ns: int) -> None:
        kernel((1, 1, 1), (1, 1, 1), [longest_ns], stream=stream)

    return wait


def run_step(engine: Engine, collector: Collector, wait: Wait, step: int, delay_ns: int) -> None:
    device = engine.device
    assert isinstance(device, PeerDevice)
    device.set_residual(engine.embedded(np.arange(16) + step))
    device.meet()
    begin_ns = time.monotonic_ns()
    wait(HEAD_START_NS)
    for planned in engine.plan:
        lease = collector.acquire(planned.info(step))
        assert lease is not None
        if planned.device_kind == "layer":
            wait(delay_ns)
        ticket = device.launch(
            planned.device_kind, planned.device_layer, 0, "register", lease.address, lease.epoch
        )
        collector.submit(lease, device.stamps_ready(ticket))
    device.end_pass(0, None, has_logits=False)
    collector.step(step, begin_ns, time.monotonic_ns(), 1)


def main() -> None:
    signal.alarm(LONGEST_S)
    engine = Engine("mini", device="cuda", tp=2, blocks=BLOCKS, capacity=64, guesses="none", launches="eager")
    assert isinstance(engine.device, PeerDevice)
    process = engine.device._group.place.process
    wait = wait_in_stream_of(engine.device)
    with musetrace.record(Path(sys.argv[1]) / "run", stamps="register") as recorder:
        engine.attach(recorder)
        assert engine._recording is not None
        for step in range(ROUNDS * len(CASES)):
            engine.wait_for_room()
            late, delay_ns = CASES[step % len(CASES)]
            run_step(engine, engine._recording.collector, wait, step, delay_ns if late == process else 0)
    print(f"process {process}: {recorder.close()}", flush=True)
    engine.close()


if __name__ == "__main__":
    main()
