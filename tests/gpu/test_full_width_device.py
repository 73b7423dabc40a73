"""Random ranks of a model that the host does not make, at the width of `mini`: recorded, and all alike.

A lower limit of what the host can hold makes `mini` such a model.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import musetrace
from musetrace.cli import main
from musetrace.muse import opening
from musetrace.muse.config import preset
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.draft.config import draft_of
from musetrace.muse.engine import Engine
from musetrace.muse.launch_plan import gpu_step_plan
from musetrace.muse.slice_steps import SliceWholeSteps, fill_cache, random_rows

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("one_torch_thread", "cuda")]

MINI = preset("mini")
CONTEXT, CAPACITY = 300, 320


@pytest.fixture(autouse=True)
def made_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "LARGEST_HIDDEN_ON_CPU", MINI.hidden_size - 1)


def opened(tp: int, **options: object) -> Engine:
    return Engine("mini", **({"device": "cuda", "tp": tp, "capacity": CAPACITY} | options))  # type: ignore[arg-type]


def verified(engine: Engine) -> np.ndarray:  # type: ignore[type-arg]
    assert isinstance(engine.device, CudaDevice)
    fill_cache(engine.device, 5)
    return engine.verify_residual(random_rows(MINI, 5, 0), CONTEXT)


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("stop4", ["sumsq", "gather"])
def test_all_ranks_have_the_residual_stream_of_one_model(tp: int, stop4: str) -> None:
    """They would not, if one had another norm, gate or bias than the others."""
    engine = opened(tp, guesses="none", stop4=stop4, seed=5)
    logits = verified(engine)
    streams = [engine.device.residual(rank) for rank in range(tp)]  # type: ignore[attr-defined]
    assert all(np.array_equal(stream, streams[0]) for stream in streams)
    assert np.isfinite(streams[0]).all()
    assert 0.1 < float(np.sqrt((streams[0] ** 2).mean())) < 10
    assert np.isfinite(logits).all()
    # Each rank's part of the vocabulary is its own.
    parts = np.split(logits, tp, axis=1)
    assert all(not np.array_equal(part, parts[0]) for part in parts[1:])
    assert np.array_equal(logits, verified(opened(tp, guesses="none", stop4=stop4, seed=5)))
    assert not np.array_equal(logits, verified(opened(tp, guesses="none", stop4=stop4, seed=6)))


def test_whole_steps_of_fewer_layers_are_repeatable() -> None:
    engines = [opened(2, layers=6, guesses="tree", seed=5) for _ in range(2)]
    states = []
    for engine in engines:
        steps = SliceWholeSteps(engine, CONTEXT, 5)
        states.append([])
        for step in range(3):
            steps.step(step)
            state = engine.device.step()  # type: ignore[attr-defined]
            assert CONTEXT < state["position"] <= CONTEXT + 16
            assert all(0 <= token < MINI.vocab_size for token in state["chosen"])
            states[-1].append((state["tokens"], state["chosen"], engine.device.logits().tobytes()))
    assert states[0] == states[1]


@pytest.mark.parametrize(("words", "layers"), [((), 8), (("--layers", "6", "--guesses", "chain"), 6)])
def test_every_launch_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], layers: int
) -> None:
    record = ["record", "-o", str(tmp_path / "run"), "--device", "cuda", "--tp", "4", "--steps", "3"]
    assert main([*record, "--context", str(CONTEXT), *words]) == 0
    assert "tokens" not in capsys.readouterr().out
    run = musetrace.open(tmp_path / "run")
    plan = gpu_step_plan(MINI, draft_of(MINI), layers)
    assert (run.verdict, run.ranks) == ("complete", (0, 1, 2, 3))
    assert not any(value for name, value in run.losses.items() if name != "missing_ranks")
    for rank in run.ranks:
        assert run.launches(rank)["kind"].to_pylist() == [planned.kind for planned in plan] * 3
    assert main(["check", str(tmp_path / "run")]) == 0
