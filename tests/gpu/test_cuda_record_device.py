"""Verify passes recorded on a real GPU: the run is whole, and the model is the CPU device's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import musetrace
from musetrace.analysis import compare
from musetrace.analysis.comparing.outputs import Outputs, compare_outputs
from musetrace.cli import main
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.device import TOKENS, LaunchTimeoutError
from musetrace.muse.engine import Engine
from musetrace.muse.prompt import synthetic_prompt
from musetrace.store import Run

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("one_torch_thread", "cuda")]

MINI_LAYERS = 8
# All operations of the table; on a stop a rank of one GPU waits too.
OPS = {
    *("exchange", "attention", "o_proj", "stop1", "pooler", "router", "stop2", "gemm1", "stop3", "gemm2"),
    *("stop4", "unpooler", "stop5", "entry", "qkv", "lm_head"),
}


def record(path: Path, stamps: str = "register", **options: object) -> tuple[musetrace.RecordingResult, Run]:
    told = DecodeOptions(**{"device": "cuda", "steps": 4, "guesses": "none", **options})  # type: ignore[arg-type]
    with musetrace.record(path, stamps=stamps) as recorder:
        record_decode(recorder, told, lambda done, of: None)
        result = recorder.close()
    return result, musetrace.open(path)


def check_spans(run: Run, rank: int, steps: int, launches: int) -> None:
    """Every launch is there in its order, and every operation was stamped in every step."""
    filed = run.launches(rank)
    assert filed["launch"].to_pylist() == [*range(launches)] * steps
    assert filed["epoch"].to_pylist() == [*range(1, steps * launches + 1)]
    assert set(filed["blocks"].to_pylist()) == {run.blocks}
    begins = filed["begin_ns"].to_numpy().astype(np.int64)
    ends = filed["end_ns"].to_numpy().astype(np.int64)
    assert (begins > 0).all()
    assert (np.diff(ends) > 0).all()
    for step in run.step_ids(rank):
        spans = run.spans(rank, step)
        assert not spans["flag"].to_numpy().any()
        jobs = np.unique(spans["job"].to_numpy())
        assert {run.job_table.op_name(int(job)) for job in jobs} == OPS


@pytest.mark.parametrize("stamps", ["register", "store"])
@pytest.mark.parametrize("launches", ["eager", "graph"])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_mini_is_recorded_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tp: int, launches: str, stamps: str
) -> None:
    result, run = record(tmp_path / "run", stamps, tp=tp, launches=launches)
    per_step = MINI_LAYERS + 2
    assert (result.verdict, result.ranks, result.steps) == ("complete", tp, 4)
    assert result.launches == 4 * per_step * tp
    assert not any(result.losses.values()), result.losses
    assert run.job_table.name == "muse_hopper"
    assert run.blocks == 132 // tp
    sms: set[int] = set()
    for rank in range(tp):
        check_spans(run, rank, 4, per_step)
        sms |= set(run.spans(rank, 0)["sm"].to_pylist())
    assert len(sms) == run.blocks * tp  # one block to an SM
    assert main(["check", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    for word in ("stop4", "gemm1", "unpooler", "H200"):
        assert word in out


@pytest.mark.parametrize("launches", ["eager", "graph"])
def test_every_build_makes_the_same_outputs_and_keeps_them(tmp_path: Path, launches: str) -> None:
    runs = [record(tmp_path / of, of, launches=launches)[1] for of in ("off", "register", "store")]
    for run in runs:
        assert compare_outputs(runs[0], run, run.ranks) == Outputs(4, 4, 4, 4, None)
        assert len(set(run.steps(0)["output"].to_pylist())) == 4
        assert run.manifest["clocks"]["sm_most_mhz"] > 1000
    found = compare(*runs[:2])
    assert found.warnings[0] == "A has no spans: only times of steps and launches are compared"
    # A graph's launches are one for the host.
    whats = {row["what"] for row in found.times.to_pylist()}
    assert whats == ({"step"} if launches == "graph" else {"step", "host launch"})


def prompt_logits(engine: Engine) -> np.ndarray:
    """Logits float32[96, vocab] of a prompt, 16 tokens a pass."""
    prompt = synthetic_prompt(engine.config.vocab_size, 3)
    return np.concatenate(
        [engine.verify(prompt[start : start + TOKENS], start) for start in range(0, prompt.size, TOKENS)]
    )


def errors_of(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Relative rms error of each token."""
    return np.sqrt(((got - want) ** 2).mean(axis=1) / (want**2).mean(axis=1))


@cache
def cpu_logits(tp: int) -> np.ndarray:
    """The same from the CPU device, with as many ranks: each rounds its own partial sums."""
    return prompt_logits(Engine("mini", tp=tp, blocks=1, seed=3))


@pytest.mark.parametrize("stop4", ["sumsq", "gather"])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_logits_are_those_of_the_cpu_device(tp: int, stop4: str) -> None:
    logits = prompt_logits(Engine("mini", device="cuda", guesses="none", tp=tp, seed=3, stop4=stop4))
    errors = errors_of(logits, cpu_logits(tp))
    # A token whose router is near a tie may take another expert, and is then far off: a few may.
    assert np.median(errors) < 2e-2, np.sort(errors)
    assert np.quantile(errors, 0.8) < 1e-1, np.sort(errors)
    assert np.median(errors_of(np.roll(logits, 1, axis=0), cpu_logits(tp))) > 0.5


def test_recording_changes_no_bit(tmp_path: Path) -> None:
    plain = prompt_logits(Engine("mini", device="cuda", guesses="none", tp=2, seed=3))
    for launches in ("eager", "graph"):
        for stamps in ("register", "store", "off"):
            engine = Engine("mini", device="cuda", guesses="none", tp=2, seed=3, launches=launches)
            prompt = synthetic_prompt(engine.config.vocab_size, 3)
            with musetrace.record(tmp_path / f"{launches}-{stamps}", stamps=stamps) as recorder:
                engine.attach(recorder)
                for step in range(prompt.size // TOKENS):
                    engine.wait_for_room()
                    first = step * TOKENS
                    logits = engine.verify(prompt[first : first + TOKENS], first, step)
                    assert logits.tobytes() == plain[first : first + TOKENS].tobytes(), (launches, stamps)
                    engine.finish_step(step, 1, 2, 1)
                assert recorder.close().lost_launches == 0


def test_a_lost_arrival_is_named_and_the_device_goes_on(tmp_path: Path) -> None:
    engine = Engine("mini", device="cuda", guesses="none", tp=2, seed=3, budget_ns=50_000_000)
    ids = synthetic_prompt(engine.config.vocab_size, 3)[:TOKENS]
    good = engine.verify(ids, 0)
    with musetrace.record(tmp_path / "run") as recorder:
        engine.attach(recorder)
        engine.verify(ids, 0, 0)
        engine.device.set_lost_block(3)  # type: ignore[attr-defined]
        with pytest.raises(
            LaunchTimeoutError, match="a launch was given up: rank . block .* waited"
        ) as caught:
            engine.verify(ids, 0, 1)
        assert caught.value.report["waited_ns"] >= 50_000_000
        engine.device.set_lost_block(None)  # type: ignore[attr-defined]
        assert engine.verify(ids, 0, 2).tobytes() == good.tobytes()
        recorder.close()
    run = musetrace.open(tmp_path / "run")
    assert len(run.manifest["reports"]) == 1


@pytest.mark.parametrize("launches", ["eager", "graph"])
def test_a_slice_of_three_layers_is_recorded_whole(tmp_path: Path, launches: str) -> None:
    result, run = record(
        tmp_path / "run", model="muse-spark-open-tp8-slice", layers=3, context=512, launches=launches
    )
    assert (result.verdict, result.ranks, result.launches) == ("complete", 1, 4 * 5)
    assert not any(result.losses.values()), result.losses
    assert run.launches(0)["kind"].to_pylist()[:5] == ["entry", "sliding", "global", "sliding", "head"]
    check_spans(run, 0, 4, 5)
    assert run.blocks == 132
    assert run.manifest["device"]["virtual_ranks"] == "loopback"
