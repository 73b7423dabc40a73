"""One of three processes of ``torchrun`` that record host memory (``test_rank_processes.py``).

``torchrun ... -m tests.unit.rank_program FOLDER`` runs the scenarios one after the other, and prints what
came out of each: a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import musetrace
from musetrace.errors import MusetraceError
from musetrace.record.source import LaunchInfo
from tests.builders import small_table
from tests.fake_peer_clock import FilePeerClock
from tests.host_device import HostDevice, already_done, wait_until
from tests.host_kernel import HostKernel

PROCESS = int(os.environ["RANK"])
FOLDER = Path(sys.argv[1])
SHORT_S = 1.0

Outcome = dict[str, Any]


def record(
    name: str,
    *,
    ranks: int = 1,
    attach: bool = True,
    until: Callable[[], None] = lambda: None,
    device: HostDevice | None = None,
    **options: Any,
) -> Outcome:
    """Three launches in each of two steps, numbered from 10 times the process on; or why there are none."""
    try:
        with musetrace.record(FOLDER / name, stamps="store", **options) as recorder:
            if attach:
                steps(recorder, device or HostDevice(ranks=ranks))
            until()
    except MusetraceError as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    result = recorder.close()
    return {"verdict": result.verdict, "ranks": result.ranks, "launches": result.launches}


def steps(recorder: musetrace.Recorder, device: HostDevice, first: int = 10 * PROCESS) -> None:
    collector = recorder.attach(device.source())
    for step in (first, first + 1):
        for launch in range(3):
            wait_until(lambda: bool(recorder._drain and recorder._drain.free))
            lease = collector.acquire(LaunchInfo(step, launch, 0, "sliding"))
            assert lease is not None
            device.stamp(lease)
            collector.submit(lease, already_done)
        collector.step(step, 1, 2, tokens=1)


def one_run() -> Outcome:
    return record("one", ranks=2)


def the_folder_exists() -> Outcome:
    return record("one")


def the_folder_is_replaced() -> Outcome:
    return record("one", force=True)


def clocks_of_their_own() -> Outcome:
    """Process p is p seconds ahead; 1 compares its clock with rank 0's, 2 cannot reach its memory.

    To the host a device's clock is far away, so that anchors are coarse.
    """

    def clock_of_device() -> int:
        return time.monotonic_ns() + PROCESS * 1_000_000_000

    def read_clock() -> int:
        time.sleep(0.004)
        return clock_of_device()

    end = FilePeerClock(clock_of_device, broken=PROCESS == 2)
    device = HostDevice(ranks=2, clock_name="skewed", read_clock=read_clock, peer_clock=lambda: end)
    return record("skewed", device=device)


def clocks_that_run_unevenly() -> Outcome:
    """As above, and process 1's clock is 200 us ahead for some time in the middle; four comparisons there."""
    bump_ns = [0]

    def clock_of_device() -> int:
        return time.monotonic_ns() + PROCESS * 1_000_000_000 + bump_ns[0]

    def read_clock() -> int:
        time.sleep(0.004)
        return clock_of_device()

    end = FilePeerClock(clock_of_device, broken=PROCESS == 2)
    device = HostDevice(clock_name="skewed", read_clock=read_clock, peer_clock=lambda: end)
    compared = []
    with musetrace.record(FOLDER / "uneven", stamps="store") as recorder:
        assert not recorder.compare_clocks()  # nothing is recorded yet
        steps(recorder, device, first=0)
        for number in range(4):
            # Longer than a comparison can take: 200 us in so long are no clock that was set.
            time.sleep(0.3)
            bump_ns[0] = 200_000 * PROCESS * (number in (1, 2))
            compared.append(recorder.compare_clocks())
        due = sum(recorder.compare_clocks(when_due=True) for _ in range(100))
        steps_of_their_own = recorder._drain.journals[0].steps if recorder._drain else 0
    result = recorder.close()
    return {"verdict": result.verdict, "compared": compared, "due": due, "steps": steps_of_their_own}


def kernels_of_their_own() -> Outcome:
    """Rank 0 launches behind the others, as at the end of a pipeline: they do not wait for it."""
    kernel = HostKernel(small_table(), 2, "store")
    others = [FOLDER / f"launched-{process}" for process in (1, 2)]
    with musetrace.record(FOLDER / "kernels", stamps="store") as recorder:
        attached = recorder.attach(kernel.table, kernel.grid, name="gemm", device="cpu")
        if PROCESS == 0:
            wait_until(lambda: all(path.exists() for path in others), timeout_s=60)
        with recorder.step(), attached.launch() as stamps:
            kernel.run(stamps.ptr)
        if PROCESS != 0:
            others[PROCESS - 1].touch()
    result = recorder.close()
    return {"verdict": result.verdict, "ranks": result.ranks, "launches": result.launches}


def unequal_ranks() -> Outcome:
    """Rank 0 begins first, so that it is the one which the others are compared with."""
    rank_0_has_begun = FOLDER / "rank-0-has-begun"
    if PROCESS == 0:
        return record("unequal", until=rank_0_has_begun.touch)
    wait_until(rank_0_has_begun.exists, timeout_s=60)
    return record("unequal", ranks=1 + (PROCESS == 1))


def another_folder() -> Outcome:
    if PROCESS == 2:
        return record("elsewhere", timeout_s=SHORT_S)
    return record("here")


def rank_0_without_a_device() -> Outcome:
    return record("headless", attach=PROCESS != 0)


def nobody_has_a_device() -> Outcome:
    return record("nothing", attach=False)


def rank_1_without_a_device() -> Outcome:
    return record("two", attach=PROCESS != 1)


def each_alone() -> Outcome:
    return record(f"alone-{PROCESS}", alone=True)


def rank_1_goes_on_recording() -> Outcome:
    rank_0_has_closed = FOLDER / "rank-0-has-closed"
    until = {1: lambda: wait_until(rank_0_has_closed.exists)}.get(PROCESS, lambda: None)
    outcome = record("late", until=until, timeout_s=SHORT_S)
    if PROCESS == 0:
        rank_0_has_closed.touch()
    return outcome


def rank_1_never_opens_it() -> Outcome:
    if PROCESS == 1:
        return {}
    return record("without-1", timeout_s=SHORT_S)


def rank_0_never_opens_it() -> Outcome:
    """The last: from now on the processes count their recordings differently."""
    if PROCESS < 2:
        return {}
    return record("without-0", timeout_s=SHORT_S)


SCENARIOS: tuple[Callable[[], Outcome], ...] = (
    one_run,
    the_folder_exists,
    the_folder_is_replaced,
    clocks_of_their_own,
    clocks_that_run_unevenly,
    kernels_of_their_own,
    unequal_ranks,
    another_folder,
    rank_0_without_a_device,
    nobody_has_a_device,
    rank_1_without_a_device,
    each_alone,
    rank_1_goes_on_recording,
    rank_1_never_opens_it,
    rank_0_never_opens_it,
)


def meet(name: str) -> None:
    """All processes begin a scenario at one time."""
    here = [FOLDER / f"{name}-{process}" for process in range(int(os.environ["WORLD_SIZE"]))]
    here[PROCESS].touch()
    wait_until(lambda: all(path.exists() for path in here), timeout_s=60)


def main() -> None:
    for scenario in SCENARIOS:
        meet(scenario.__name__)
        line = json.dumps({"scenario": scenario.__name__, "process": PROCESS} | scenario())
        # One write, which no other process's can cut.
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
