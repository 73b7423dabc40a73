"""One of two processes that share `mini`, each with a GPU that runs nothing (``test_peer_processes.py``).

Runs the scenarios one after the other and prints what came out of each: a line of JSON. The argument is a
folder to record into.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import musetrace
from musetrace.errors import MusetraceError
from musetrace.muse import opening
from musetrace.muse.cuda_model import RandomRanks
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.engine import Engine
from musetrace.muse.peer_device import PeerDevice
from musetrace.muse.process_group import ProcessGroup
from musetrace.record.clock_moments import FIRST_STEPS
from musetrace.record.process_place import process_place
from tests.unit import fake_cuda

PROCESS = int(os.environ["RANK"])
FOLDER = Path(sys.argv[1])
AHEAD_NS = 5_000_000_000
IDS = np.arange(16)

Outcome = dict[str, Any]


@contextmanager
def engine(**options: Any) -> Iterator[Engine]:
    made = Engine("mini", **({"device": "cuda", "layers": 1, "tp": 4} | options))
    yield made
    made.close()


def outcome(run: Callable[[], Any]) -> Any:
    """What it returns, or its error's class and line."""
    try:
        return run()
    except MusetraceError as error:
        return [type(error).__name__, str(error)]


def verify(of: Engine, position: int = 0) -> Any:
    """The distinct first and last logits of each rank's quarter, or the error."""

    def run() -> list[list[float]]:
        logits = of.verify(IDS, position)
        assert logits.shape == (16, of.config.vocab_size)
        assert (logits == logits[0]).all()
        return logits[0].reshape(4, -1)[:, [0, -1]].tolist()  # type: ignore[no-any-return]

    return outcome(run)


def a_pass(module: ModuleType) -> Outcome:
    with engine() as made:
        results = [verify(made), verify(made, 16)]
        device = made.device
        fake = module.made[-1]
        connected = fake.peers
    assert isinstance(device, PeerDevice)
    return {
        "logits": results,
        "held": [fake.first_rank, fake.held, device.ranks, device.blocks],
        "gpu": module.chosen[:2],
        "boxes": device._group._boxes is not None,
        "peers": [handle.decode() for handle in connected],
        "log": fake.log,
    }


def a_recorded_run(module: ModuleType) -> Outcome:
    """Two steps, then one in which a block of rank 1 is lost."""
    with engine(launches="graph") as made:
        with musetrace.record(FOLDER / "run", stamps="store") as recorder:
            made.attach(recorder)
            for step in (0, 1, 2):
                if PROCESS == 0 and step == 2:
                    made.device.set_lost_block(3)  # type: ignore[attr-defined]
                failed = outcome(lambda: made.verify(IDS, 0, step=step).shape)  # noqa: B023
                made.finish_step(step, 1, 2, 1)
        result = recorder.close()
    return {
        "failed": failed,
        "verdict": result.verdict,
        "launches": [result.ranks, result.launches, result.lost_launches],
        # The drain thread reads it too.
        "clocks_of": sorted(set(module.clocks_of)),
    }


def a_run_at_full_width(module: ModuleType) -> Outcome:
    """Whole steps of random ranks with fewer layers; `mini` counts as too large for the host."""
    told = DecodeOptions(device="cuda", tp=4, layers=6, steps=2, context=100, guesses="chain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "LARGEST_HIDDEN_ON_CPU", 256)
        made: list[RandomRanks] = []
        patch.setattr(opening, "RandomRanks", lambda *of: made.append(RandomRanks(*of)) or made[-1])
        with musetrace.record(FOLDER / "full") as recorder:
            decoded = record_decode(recorder, told, lambda done, of: None)
            verdict = recorder.close().verdict
    fake = module.made[-1]
    ranks = range(fake.first_rank, fake.first_rank + fake.held)
    layers = [made[0].layer(rank, 1) for rank in ranks]
    return {
        "verdict": verdict,
        "tokens": decoded.tokens,
        "biases": [layer["router_bias"].tolist() for layer in layers],
        "routers": [layer["router"][0, :3].tolist() for layer in layers],
        "keys": [fake.stored["k", rank, 1].ravel()[:3].tolist() for rank in range(fake.held)],
    }


def a_lost_block(module: ModuleType) -> Outcome:
    with engine() as made:
        before = verify(made)
        if PROCESS == 0:
            made.device.set_lost_block(3)  # type: ignore[attr-defined]
        failed = verify(made, 16)
        made.device.set_lost_block(None)  # type: ignore[attr-defined]
        return {"failed": failed, "same": verify(made, 16) == before, "log": module.made[-1].log}


def different_passes(module: ModuleType) -> Outcome:
    with engine() as made:
        failed = verify(made, 16 * PROCESS)
        return {"failed": failed, "after": verify(made)}


def a_full_cache(module: ModuleType) -> Outcome:
    with engine(capacity=32) as made:
        return {"failed": verify(made, 32), "after": verify(made, 16)}


def whole_steps(module: ModuleType) -> Outcome:
    """A prompt and the tokens behind it, of a graph."""
    with engine(layers=None, launches="graph") as made:
        tokens = made.generate([5, 6, 7], 4)
        fake = module.made[-1]
        connected = fake.peers
        logits = made.device.logits()[0].reshape(4, -1)[:, [0, -1]].tolist()
        loaded = [rank for rank, layer in fake.draft_layers if layer == 0]
    peers = [handle.decode() for handle in connected]
    return {"tokens": tokens, "logits": logits, "peers": peers, "loaded": loaded, "log": fake.log}


def recorded_steps(module: ModuleType) -> Outcome:
    """What ``musetrace record`` records."""
    with musetrace.record(FOLDER / "steps", stamps="register") as recorder:
        told = DecodeOptions(device="cuda", steps=3, tp=4, guesses="chain")
        decoded = record_decode(recorder, told, lambda done, of: None)
        result = recorder.close()
    return {"verdict": result.verdict, "steps": result.steps, "tokens": decoded.tokens}


def a_lost_block_in_a_step(module: ModuleType) -> Outcome:
    """The step is run again; in between the state is that in which it began."""
    with engine(layers=None, budget_ns=1) as made:
        fake, begun = module.made[-1], [made.generate([5, 6, 7], 2), made.device.step()]  # type: ignore[attr-defined]
        if PROCESS == 0:
            made.device.set_lost_block(3)  # type: ignore[attr-defined]
        failed = outcome(made.decode_step)
        state = made.device.step()  # type: ignore[attr-defined]
        made.device.set_lost_block(None)  # type: ignore[attr-defined]
        again = outcome(made.decode_step)
    names = ("position", "tokens", "parents", "top_k", "temperature", "seed")
    return {
        "failed": failed,
        "same": [state[name] for name in names] == [begun[1][name] for name in names],
        "kept": state["kept"],
        "again": again,
        "resets": fake.log.count("reset"),
    }


def other_prompts(module: ModuleType) -> Outcome:
    """Of other tokens, and of another length."""
    with engine(layers=None) as made:
        others = outcome(lambda: made.generate([5 + PROCESS], 2))
        longer = outcome(lambda: made.generate([5] * 16 * (1 + PROCESS), 2))
        return {"others": others, "longer": longer, "after": outcome(lambda: made.generate([5], 3))}


def other_guesses(module: ModuleType) -> Outcome:
    guesses = ("tree", "chain")[PROCESS]
    return {"failed": outcome(lambda: Engine("mini", device="cuda", tp=4, guesses=guesses))}


def a_draft_that_one_cannot_load(module: ModuleType) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        if PROCESS == 1:

            def full(*_: object) -> None:
                raise RuntimeError("out of memory")

            patch.setattr(fake_cuda.FakeMuseDevice, "add_draft", full)
        made = Engine("mini", device="cuda", tp=4)
        return {"failed": outcome(lambda: made.generate([5], 2))}


def many_steps(module: ModuleType) -> Outcome:
    """Enough for a comparison of clocks between them."""
    with engine() as made:
        with musetrace.record(FOLDER / "many", stamps="store") as recorder:
            made.attach(recorder)
            for step in range(FIRST_STEPS + 2):
                made.wait_for_room()
                made.verify(IDS, 0, step=step)
                made.finish_step(step, 1, 2, 1)
        result = recorder.close()
    return {"verdict": result.verdict, "steps": result.steps, "lost": result.lost_launches}


def other_settings(module: ModuleType) -> Outcome:
    return {"failed": outcome(lambda: Engine("mini", device="cuda", layers=1, tp=4, seed=7 * PROCESS))}


def weights_that_one_cannot_load(module: ModuleType) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        if PROCESS == 1:

            def full(*_: object) -> None:
                raise RuntimeError("out of memory")

            patch.setattr(fake_cuda.FakeMuseDevice, "set_layer", full)
        return {"failed": outcome(lambda: Engine("mini", device="cuda", layers=1, tp=4))}


def a_gpu_that_cannot_go_on(module: ModuleType) -> Outcome:
    made = Engine("mini", device="cuda", layers=1, tp=4)

    def broken() -> None:
        raise RuntimeError("an illegal memory access")

    if PROCESS == 1:
        module.made[-1].synchronize = broken
        module.made[-1].reset = broken
    return {"failed": verify(made), "again": verify(made), "launches": len(module.made[-1].log)}


def an_exchange_behind_another(module: ModuleType) -> Outcome:
    """One is begun, and its result is asked for behind others."""
    place = process_place(os.environ)
    assert place is not None
    group = ProcessGroup(place)
    begun = group.begin_exchange(np.full(100_000, 1 + PROCESS, dtype=np.uint8))
    group.meet()
    other = group.exchange(np.full(3, 10 + PROCESS, dtype=np.uint8))
    told = group.end_exchange(begun)
    group.meet()
    group.close()
    return {"told": [np.unique(part).tolist() for part in told], "other": [part.tolist() for part in other]}


def a_late_process(module: ModuleType) -> Outcome:
    place = process_place(os.environ)
    assert place is not None
    group = ProcessGroup(place)
    if PROCESS == 1:
        time.sleep(1.0)
    return {"failed": outcome(lambda: group.meet(0.3)), "again": outcome(group.require_whole)}


def a_killed_process(module: ModuleType) -> Outcome:
    """The last: process 1 does not come back."""
    made = Engine("mini", device="cuda", layers=1, tp=4)
    verify(made)
    if PROCESS == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    failed = verify(made)
    return {
        "failed": failed,
        "seconds": time.monotonic() - start,
        "again": verify(made),
        "launches": [entry for entry in module.made[-1].log if entry[0] in ("entry", "head")],
    }


SCENARIOS = (
    a_pass,
    a_recorded_run,
    a_run_at_full_width,
    a_lost_block,
    different_passes,
    a_full_cache,
    whole_steps,
    recorded_steps,
    a_lost_block_in_a_step,
    other_prompts,
    other_guesses,
    a_draft_that_one_cannot_load,
    many_steps,
    other_settings,
    weights_that_one_cannot_load,
    a_gpu_that_cannot_go_on,
    an_exchange_behind_another,
    a_late_process,
    a_killed_process,
)


def main() -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        module = fake_cuda.install(patch, gpus=2, ahead_ns=PROCESS * AHEAD_NS)
        patch.setattr(opening, "synthesize", cache(opening.synthesize))
        patch.setattr(opening, "synthesize_draft", cache(opening.synthesize_draft))
        for scenario in SCENARIOS:
            print(json.dumps({"scenario": scenario.__name__} | scenario(module)), flush=True)


if __name__ == "__main__":
    main()
