"""One of two processes under ``torchrun`` that run whole steps of `mini`, each on a GPU of its own.

``torchrun --standalone --nproc-per-node 2 -m tests.gpu.real_steps_program RESULTS``, as
``real_ranks_program.py``: every case compares with virtual ranks on the GPU of process 0, bit for bit.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

from musetrace.errors import DeviceError
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.device import LaunchTimeoutError
from musetrace.muse.engine import Engine
from musetrace.muse.joint_passes import JointPasses
from musetrace.muse.peer_device import PeerDevice
from musetrace.muse.peer_requirements import own_facts, rank_share, require_agreement
from musetrace.muse.process_group import ProcessGroup
from musetrace.muse.speculative.sampling import Sampling
from tests.gpu.real_ranks_program import GPU, MODULE, PLACE, Figures, run_cases
from tests.gpu.step_case import (
    BUDGET_NS,
    CONFIG,
    DRAFT,
    BuildPasses,
    Grid,
    Join,
    Trace,
    caches_of,
    draft,
    prompt,
    run_guided_steps,
    run_steps,
    weights,
    whole_steps,
)

GRIDS = {tp: Grid(tp, 132 // tp) for tp in (2, 4)}
SHORT_BUDGET_NS = 200_000_000
STEPS = 10
GENERATED = 40


@contextmanager
def real_ranks(grid: Grid, budget_ns: int = BUDGET_NS) -> Iterator[tuple[PeerDevice, Join]]:
    """A device of this process's ranks with their draft, and what joins its passes with the others'."""
    numbers = grid.numbers(budget_ns)
    with ProcessGroup(PLACE, timeout_s=60) as group:
        require_agreement(group, own_facts(numbers))
        share = rank_share(PLACE, CONFIG, grid.tp)
        device = PeerDevice(MODULE, CONFIG, group, share, draft=DRAFT, **numbers)
        device.load(weights(grid.tp, GPU))
        device.connect()
        device.load_draft(draft())
        yield device, partial(JointPasses, device)
        device.close()


def virtual_ranks(grid: Grid) -> CudaDevice:
    """A device of all ranks, on this process's GPU."""
    device = CudaDevice(MODULE, CONFIG, draft=DRAFT, **grid.numbers())
    device.load(weights(grid.tp, GPU))
    device.load_draft(draft())
    return device


@cache
def expected(
    grid: Grid, guesses: str, prompts: int = 2, of_prompt: int = STEPS, sampling: Sampling | None = None
) -> tuple[Trace, dict[str, str]]:
    """What virtual ranks make, one launch after the other."""
    device = virtual_ranks(grid)
    steps = whole_steps(device, guesses, BuildPasses(device))
    return run_steps(device, steps, prompts, of_prompt, sampling), caches_of(device, 0)


def compare(device: PeerDevice, made: Trace, reference: Callable[[], tuple[Trace, dict[str, str]]]) -> None:
    """Behind all steps of a case, in both processes; process 0 hears of the other's, and compares."""
    caches = caches_of(device, PLACE.process * device.ranks)
    told = device._group.exchange_any(json.dumps([asdict(made), caches]).encode())
    if PLACE.process != 0:
        return
    (first, caches), (second, others) = (json.loads(text) for text in told)
    trace, whole = reference()
    assert first == second, "the processes have different steps"
    for name, values in asdict(trace).items():
        wrong = [n for n, value in enumerate(values) if first[name][n] != value]
        assert not wrong, f"{name} {wrong[:5]} and {len(wrong)} in all differ from those of virtual ranks"
    assert caches | others == whole, "residual stream, keys or values differ"


def timed(run: Callable[[], Trace], launches: int) -> tuple[Trace, Figures]:
    start_ns = time.perf_counter_ns()
    made = run()
    spent_us = (time.perf_counter_ns() - start_ns) / 1000
    return made, {"passes": launches, "pass_us": round(spent_us / launches)}


def equal_to_virtual_ranks(tp: int, guesses: str, ways: str) -> Figures:
    """20 steps behind two prompts: tokens, state, logits; and what is left in all caches."""
    launches, build = ways.split()
    with real_ranks(GRIDS[tp]) as (device, joined):
        device._device.set_delay_seed(tp)
        steps = whole_steps(device, guesses, BuildPasses(device, build, launches), joined)
        made, figures = timed(lambda: run_steps(device, steps, 2, STEPS), 2 * STEPS)
        compare(device, made, lambda: expected(GRIDS[tp], guesses))
    return figures


def drawn_tokens() -> Figures:
    sampling = Sampling(0.8, 11)
    with real_ranks(GRIDS[4]) as (device, joined):
        steps = whole_steps(device, "tree", BuildPasses(device, "off", "graph"), joined)
        made = run_steps(device, steps, 2, STEPS, sampling)
        compare(device, made, lambda: expected(GRIDS[4], "tree", sampling=sampling))
    return {}


def accepted_paths(tp: int) -> Figures:
    """Steps that accept five guesses each, behind others that tell which are right."""
    with real_ranks(GRIDS[tp]) as (device, joined):
        steps = whole_steps(device, "tree", BuildPasses(device), joined)
        made = run_steps(device, steps, 1, GENERATED)
        compare(device, made, lambda: expected(GRIDS[tp], "tree", 1, GENERATED))
        got = run_guided_steps(device, made.tokens, "register", joined)
    assert got == made.tokens[: 1 + 5 * 6], (got, made.tokens)
    return {}


def a_thousand_steps() -> Figures:
    with real_ranks(GRIDS[2]) as (device, joined):
        steps = whole_steps(device, "tree", BuildPasses(device, "off", "graph"), joined)
        made, figures = timed(lambda: run_steps(device, steps, 10, 100), 1000)
        compare(device, made, lambda: expected(GRIDS[2], "tree", 10, 100))
    return figures


def random_delays() -> Figures:
    """100 steps of the build that sleeps at every job, elsewhere each time and in each process."""
    with real_ranks(GRIDS[4]) as (device, joined):

        def before(number: int) -> None:
            device._device.set_delay_seed(1 + number)

        steps = whole_steps(device, "tree", BuildPasses(device, "delays"), joined)
        made, figures = timed(lambda: run_steps(device, steps, 4, 25, before=before), 100)
        compare(device, made, lambda: expected(GRIDS[4], "tree", 4, 25))
    return figures


def an_engine() -> Figures:
    """What users call: a prompt and the tokens behind it."""
    options = {"tp": 4, "blocks": 33, "capacity": 512, "seed": 4, "launches": "graph"}

    def generate() -> list[list[int]]:
        engine = Engine("mini", device="cuda", **options)
        ids = prompt(1).tolist()
        made = [engine.generate(ids, GENERATED), engine.generate(ids, GENERATED, Sampling(0.7, 3))]
        engine.close()
        return made

    made = generate()
    if PLACE.process == 0:
        with patch.dict(os.environ):
            del os.environ["WORLD_SIZE"], os.environ["RANK"]
            assert made == generate(), "tokens differ from those of virtual ranks"
    return {}


def parts_that_do_not_come() -> Figures:
    """Process 1 fails in front of the tree; process 0 waits for its parts. Then both run the step again."""
    with real_ranks(GRIDS[2], SHORT_BUDGET_NS) as (device, joined):
        stops = False

        def before(kind: str) -> None:
            if stops and kind == "draft_tree":
                raise DeviceError("stopped in front of the tree")

        steps = whole_steps(device, "tree", BuildPasses(device, before=before), joined)
        made = [steps.prefill(prompt(0), None), *steps.run(None, None)]
        stops, start = PLACE.process == 1, time.monotonic()
        try:
            steps.run(None, None)
            failed = DeviceError("nothing failed")
        except DeviceError as error:
            failed = error
        seconds, stops = time.monotonic() - start, False
        count = len(made)
        made.append(steps.run(None, None)[0])
        assert device.logits().shape == (16, CONFIG.vocab_size)
        lines = [text.decode() for text in device._group.exchange_any(str(failed).encode())]
    if PLACE.process == 0:
        assert isinstance(failed, LaunchTimeoutError), lines
        assert "rank 0 block 0 " in lines[0], lines
        assert "tree_wait_ranks" in lines[0], lines
        assert made == expected(GRIDS[2], "tree")[0].tokens[: count + 1], "the step gives another token"
    assert lines[1] == "stopped in front of the tree", lines
    return {"failed_after_s": round(seconds, 2), "said": lines}


def a_process_that_is_killed_in_a_draft_launch() -> Figures:
    """The last case: process 1 does not come back. Process 0 says so, and its GPU runs virtual ranks."""
    with ProcessGroup(PLACE, timeout_s=60) as group:
        numbers = GRIDS[2].numbers(SHORT_BUDGET_NS)
        share = rank_share(PLACE, CONFIG, 2)
        device = PeerDevice(MODULE, CONFIG, group, share, draft=DRAFT, **numbers)
        device.load(weights(2, GPU))
        device.connect()
        device.load_draft(draft())
        ends = False

        def before(kind: str) -> None:
            if ends and kind == "draft_layer":
                time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)

        steps = whole_steps(device, "tree", BuildPasses(device, before=before), partial(JointPasses, device))
        steps.prefill(prompt(0), None)
        steps.run(None, None)
        ends, start = PLACE.process == 1, time.monotonic()
        try:
            steps.run(None, None)
            said = "nothing"
        except DeviceError as error:
            said = str(error)
        seconds = time.monotonic() - start
    assert said.startswith("process 1 of 2 is gone"), said
    assert seconds < 10, f"it took {seconds:.1f} s"
    del device, steps
    again = virtual_ranks(GRIDS[2])
    made = run_steps(again, whole_steps(again, "tree", BuildPasses(again)), 2, STEPS)
    assert made == expected(GRIDS[2], "tree")[0], "the GPU computes something else now"
    return {"said": [said], "failed_after_s": round(seconds, 2)}


WAYS = ("eager off", "eager register", "eager delays", "graph off", "graph register")
CASES: dict[str, Callable[[], Figures]] = {
    **{
        f"TP{tp} {guesses} {ways}": partial(equal_to_virtual_ranks, tp, guesses, ways)
        for tp in GRIDS
        for guesses in ("tree", "chain")
        for ways in WAYS
    },
    "drawn tokens": drawn_tokens,
    "TP2 accepted paths": partial(accepted_paths, 2),
    "TP4 accepted paths": partial(accepted_paths, 4),
    "an engine": an_engine,
    "parts that do not come": parts_that_do_not_come,
    "100 steps with random delays": random_delays,
    "1,000 steps": a_thousand_steps,
    "a process that is killed in a draft launch": a_process_that_is_killed_in_a_draft_launch,
}


if __name__ == "__main__":
    run_cases(CASES, Path(sys.argv[1]))
