"""Whole decode steps of `mini` on a real GPU: their tokens, eager and as one graph, recorded and not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

import musetrace
from musetrace.cli import main
from musetrace.errors import DeviceError
from musetrace.muse.config import preset
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.device import TOKENS, LaunchTimeoutError
from musetrace.muse.draft.config import draft_of
from musetrace.muse.engine import Engine
from musetrace.muse.launch_plan import gpu_step_plan
from musetrace.muse.speculative.sampling import Sampling, perturbed
from musetrace.muse.whole_steps import FROM_STATE
from tests.unit.test_generate import plain
from tests.unit.test_speculative_reference import tree_around

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("one_torch_thread", "cuda")]

COUNT = 60
# Logits of passes that sum in another order, behind eight layers with bf16 between them.
NEAR_TIE = 0.05
CAPACITY = 512
MINI = preset("mini")
Engines = Callable[..., Engine]


@pytest.fixture(scope="module")
def engines(cuda: ModuleType) -> Iterator[Engines]:
    """`engines(tp, guesses, launches)`, each made once."""
    made: dict[tuple[int, str, str], Engine] = {}

    def get(tp: int, guesses: str = "tree", launches: str = "graph") -> Engine:
        key = (tp, guesses, launches)
        if key not in made:
            options = {"tp": tp, "capacity": CAPACITY, "seed": 4, "budget_ns": 300_000_000}
            made[key] = Engine(MINI, device="cuda", guesses=guesses, launches=launches, **options)
        return made[key]

    yield get
    made.clear()


def prompt_of(length: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(length).integers(MINI.vocab_size, size=length)]


def gaps(engine: Engine, text: list[int], first: int, sampling: Sampling | None) -> NDArray[np.float64]:
    """How far each token from ``first`` on is from the best one of its place, in rms of the logits."""
    steps, device = engine.whole_steps(), engine.device
    drawn = {"temperature": sampling.temperature, "seed": sampling.seed} if sampling else {}
    device.set_step(kept=0, **({"temperature": 0.0, "seed": 0} | drawn))  # type: ignore[attr-defined]
    found = []
    for start in range(0, len(text), TOKENS):
        steps._prefill_pass(np.array(text[start : start + TOKENS]), start)
        steps._head.run(FROM_STATE, None, None)
        positions = start + 1 + np.arange(TOKENS)
        logits = device.logits()
        scores = logits if sampling is None else perturbed(logits, positions, sampling)
        for row, position in enumerate(positions):
            if first <= position < len(text):
                gap = scores[row].max() - scores[row, text[position]]
                found.append(float(gap / np.sqrt((logits[row] ** 2).mean())))
    return np.array(found)


@pytest.mark.parametrize("sampling", [None, Sampling(0.8, 5)])
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_tokens_are_those_of_the_target(engines: Engines, tp: int, sampling: Sampling | None) -> None:
    """By tree and by chain; a graph's are those of its launches. One prompt is longer than the window.

    Of a chain of guesses they are those of plain decoding, to the bit. Behind a branch of a tree a key lies
    elsewhere in the cache while the pass runs, which decides in which order attention is summed, and so a
    token may be another one when two were as good as equal.
    """
    for length in (5, 90):
        prompt = prompt_of(length)
        made = {}
        want = plain(engines(tp, "chain"), prompt, COUNT, sampling)
        for guesses, launches in (("tree", "graph"), ("chain", "graph"), ("tree", "eager")):
            engine = engines(tp, guesses, launches)
            made[guesses, launches] = engine.generate(prompt, COUNT, sampling)
            found = gaps(engine, prompt + made[guesses, launches], length, sampling)
            assert len(found) == COUNT
            assert found.max() <= NEAR_TIE, (length, guesses, launches)
            assert (found > 0).sum() <= 2, (length, guesses, launches)
        assert made["tree", "graph"] == made["tree", "eager"]
        assert made["chain", "graph"] == want


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_a_thousand_tokens_by_chains_are_those_of_plain_decoding(engines: Engines, tp: int) -> None:
    engine = engines(tp, "chain")
    for length in (5, 64, 120):
        prompt = prompt_of(length)
        assert engine.generate(prompt, 340) == plain(engine, prompt, 340), length


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_logits_do_not_depend_on_where_a_pass_begins(engines: Engines, tp: int) -> None:
    """Bit for bit, through all layers: so decoding by chains of guesses is decoding one by one."""
    engine, text = engines(tp), np.array(prompt_of(160))
    want = np.concatenate([engine.verify(text[start : start + 16], start) for start in range(0, 160, 16)])
    for first in (1, 5, 11):
        for start in (0, *range(first, 160 - TOKENS, TOKENS)):
            got = engine.verify(text[start : start + 16], start)
            assert got.tobytes() == want[start : start + 16].tobytes(), (first, start)


def guided_step(engine: Engine, right: list[int], seed: int) -> list[int]:
    """A whole step whose tree, behind the draft's, is one with ``right`` in it, from the root on."""
    device, tree = engine.device, tree_around(right, seed)
    for planned in engine.whole_steps().plan:
        if planned.kind == "embed":
            parents = [0, *tree.parents[1:].tolist()]
            device.set_step(tokens=tree.tokens.tolist(), parents=parents)  # type: ignore[attr-defined]
        device.wait(device.launch(planned.device_kind, planned.device_layer, FROM_STATE))
    return list(device.step()["chosen"])  # type: ignore[attr-defined]


def test_right_guesses_are_accepted_and_change_no_token(engines: Engines) -> None:
    engine = engines(2, "tree", "eager")
    prompt = prompt_of(20)
    right = engine.generate(prompt, 40)
    got = [engine.whole_steps().prefill(np.array(prompt), None)]
    for step in range(5):
        made = guided_step(engine, right[len(got) - 1 :], step)
        assert len(made) == 6
        got += made
    assert got == right[: len(got)]


def test_a_step_that_does_not_fit_the_cache_is_refused(engines: Engines) -> None:
    engine = engines(1)
    engine.whole_steps().prefill(np.array(prompt_of(20)), None)
    engine.device.set_step(position=CAPACITY - 16)  # type: ignore[attr-defined]
    engine.decode_step()
    with pytest.raises(DeviceError, match="the KV cache is full"):
        engine.decode_step()


@pytest.mark.parametrize("launches", ["graph", "eager"])
def test_a_step_that_is_given_up_leaves_the_device_usable(launches: str) -> None:
    """A graph keeps the fault that it was captured with; passes behind it are launched one by one."""
    engine = Engine(MINI, device="cuda", tp=2, capacity=CAPACITY, launches=launches, budget_ns=100_000_000)
    steps, prompt = engine.whole_steps(), np.array(prompt_of(20))
    root = steps.prefill(prompt, None)
    logits = engine.device.logits()
    engine.device.set_lost_block(1)  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(LaunchTimeoutError):
            engine.decode_step()
    engine.device.set_lost_block(None)  # type: ignore[attr-defined]
    assert steps.prefill(prompt, None) == root
    assert engine.device.logits().tobytes() == logits.tobytes()
    if launches == "eager":
        assert len(engine.decode_step()) >= 1


@pytest.mark.parametrize("stamps", ["register", "store"])
@pytest.mark.parametrize(("tp", "launches"), [(1, "graph"), (2, "eager"), (4, "graph")])
def test_every_launch_of_a_step_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tp: int, launches: str, stamps: str
) -> None:
    told = DecodeOptions(device="cuda", steps=3, tp=tp, launches=launches)
    with musetrace.record(tmp_path / "run", stamps=stamps) as recorder:
        made = record_decode(recorder, told, lambda done, of: None)
        result = recorder.close()
    run = musetrace.open(tmp_path / "run")
    plan = gpu_step_plan(MINI, draft_of(MINI))
    assert (result.verdict, result.ranks, result.steps) == ("complete", tp, 3)
    assert not any(result.losses.values()), result.losses
    assert made is not None
    assert run.manifest["build"]["guesses"] == "tree"
    kinds_with_jobs = set()
    for rank in range(tp):
        assert run.launches(rank)["launch"].to_pylist() == [*range(len(plan))] * 3
        spans = run.spans(rank, 1)
        assert not spans["flag"].to_numpy().any()
        for number, planned in enumerate(plan):
            jobs = np.unique(spans["job"].to_numpy()[spans["launch"].to_numpy() == number])
            ops = {run.job_table.op_name(int(job)) for job in jobs}
            if ops:
                kinds_with_jobs.add(planned.kind)
            if planned.kind == "draft_tree":
                assert ops == {"tree"}
            elif planned.kind == "draft_layer":
                assert {"attention", "o_proj", "gate_up", "down"} <= ops
            elif planned.kind == "draft_context":
                assert {"embed", "fc", "context", "qkv"} <= ops
            elif planned.device_kind == "layer":
                assert {"attention", "gemm1", "stop5"} <= ops
            elif planned.kind in ("accept", "keep_kv"):
                assert ops == {"accept"}
    assert kinds_with_jobs == {planned.kind for planned in plan}
    assert main(["check", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    for word in ("gate_up", "gemm1", "tree", "accept"):
        assert word in out


@pytest.mark.parametrize("launches", ["graph", "eager"])
def test_stamps_change_no_bit_of_a_step(tmp_path: Path, launches: str) -> None:
    outputs = []
    for stamps in ("off", "register", "store"):
        with musetrace.record(tmp_path / stamps, stamps=stamps) as recorder:
            told = DecodeOptions(device="cuda", steps=4, launches=launches)
            record_decode(recorder, told, lambda done, of: None)
        steps = musetrace.open(tmp_path / stamps).steps(0)
        outputs.append((steps["tokens"].to_pylist(), steps["output"].to_pylist()))
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(set(outputs[0][1])) == 4
