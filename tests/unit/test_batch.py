"""Several sequences at once run on the ordinary chain: their tokens, refusals, and what a run says of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import musetrace
from musetrace.cli import main
from musetrace.errors import DeviceError, UsageError
from musetrace.muse.batch.generation import BatchGeneration, is_batch
from musetrace.muse.batch.ordinary_chain import PassRows
from musetrace.muse.config import PRESETS, MuseConfig, preset
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.engine import Engine
from musetrace.muse.prompt import synthetic_prompt
from musetrace.muse.reference import embed
from musetrace.muse.rounding import Rounding
from musetrace.muse.speculative.reference import plain_tokens
from musetrace.muse.speculative.sampling import Sampling
from musetrace.muse.weights import synthesize, synthesize_head
from tests.unit import fake_cuda
from tests.unit.fake_chain import next_token
from tests.unit.test_speculative_reference import DRAFT, TARGET

CAPACITY, COUNT, VOCAB = 96, 8, 64

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def prompt_of(length: int) -> list[int]:
    return np.random.default_rng(length).integers(VOCAB, size=length).tolist()


@pytest.fixture(scope="module", params=[1, 2])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(TARGET, draft=DRAFT, tp=request.param, blocks=1, capacity=CAPACITY, seed=6)


@pytest.mark.parametrize("sampling", [None, Sampling(0.8, 5)])
def test_each_sequence_has_the_tokens_that_it_has_alone(engine: Engine, sampling: Sampling | None) -> None:
    """By the device's whole steps, and by the chain itself, one token a pass.

    Prompts of a pass and of several, shorter and longer than the window of 20.
    """
    prompts = [prompt_of(length) for length in (1, 16, 45, 45)]
    alone = [engine.generate(prompt, COUNT, sampling) for prompt in prompts]
    assert engine.generate(prompts, COUNT, sampling) == alone
    model, tp = synthesize(TARGET, seed=6), engine.device.tp
    for prompt, tokens in zip(prompts, alone, strict=True):
        plain = plain_tokens(model, np.array(prompt), COUNT, CAPACITY, Rounding.BF16, tp, sampling)
        assert plain == tokens
    assert engine.generate(prompts[1:3], COUNT, sampling) == alone[1:3]
    assert engine.generate([prompts[1]], COUNT, sampling) == [alone[1]]


@dataclass
class WrittenChain:
    """Keeps what it is given, and insists on rows that follow what went into a sequence's cache."""

    sequences: int
    capacity: int = 40
    config: MuseConfig = TARGET
    seen: list[list[int]] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = [[] for _ in range(self.sequences)]

    def run(self, rows: PassRows) -> NDArray[np.float32]:
        self.passes.append(len(rows.ids))
        logits = np.zeros((len(rows.ids), VOCAB), dtype=np.float32)
        for row, (token, sequence, position) in enumerate(
            zip(rows.ids.tolist(), rows.sequences.tolist(), rows.positions.tolist(), strict=True)
        ):
            if position == 0:
                self.seen[sequence] = []
            assert position == len(self.seen[sequence]) < self.capacity
            self.seen[sequence].append(token)
            logits[row, sum(self.seen[sequence]) % VOCAB] = 1
        return logits


def expected(prompt: list[int], count: int) -> list[int]:
    text = list(prompt)
    for _ in range(count):
        text.append(sum(text) % VOCAB)
    return text[len(prompt) :]


@given(st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=36), min_size=2, max_size=16))
def test_prompts_share_passes_and_no_row_is_missed(prompts: list[list[int]]) -> None:
    chain = WrittenChain(len(prompts))
    made = BatchGeneration(chain, prompts, 4).tokens()
    assert made == [expected(prompt, 4) for prompt in prompts]
    total = sum(map(len, prompts))
    assert chain.passes == [16] * (total // 16) + [total % 16] * (total % 16 > 0) + [len(prompts)] * 3


def test_a_full_cache_starts_again_behind_the_prompts() -> None:
    prompts = [[1, 2, 3], list(range(1, 37))]
    generation = BatchGeneration(WrittenChain(2), prompts)
    first = [generation.step() for _ in range(4)]
    assert [generation.step() for _ in range(4)] == first


def test_a_pass_is_filled_with_its_last_row() -> None:
    rows = PassRows(*(np.array(column) for column in ([7, 8], [0, 1], [4, 9]))).filled()
    assert [rows.ids.tolist(), rows.sequences.tolist(), rows.positions.tolist()] == [
        [7] + [8] * 15,
        [0] + [1] * 15,
        [4] + [9] * 15,
    ]


@pytest.mark.parametrize(
    ("prompt", "batch"),
    [
        ([1, 2], False),
        ([], False),
        ("ab", False),
        (["a"], False),
        (7, False),
        ([[1]], True),
        ([1, [2]], True),
    ],
)
def test_what_is_a_batch(prompt: object, batch: bool) -> None:
    assert is_batch(prompt) == batch
    assert is_batch(np.zeros((2, 3), dtype=np.int64))
    assert not is_batch(np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize(
    ("prompts", "count", "message"),
    [
        ([[1], []], 5, "prompt 1 of the batch: the prompt is empty"),
        (
            [[64], [1]],
            5,
            "prompt 0 of the batch: token id 64 is outside the vocabulary of model small",
        ),
        ([[1], ["a"]], 5, "prompt 1 of the batch: a prompt is a list of token ids"),
        ([[1], 2], 5, "prompt 1 of the batch: a prompt is a list of token ids"),
        ([[1], [2]], 0, "at least one new token must be asked for, not 0"),
        (
            [[1], [1] * 90],
            8,
            "prompt 1 of the batch: 90 tokens and 8 new ones need a cache of 97 positions, and it has 96",
        ),
        ([[1]] * 17, 1, "a batch has 2 to 16 sequences, a row of the pass each, not 17"),
    ],
)
def test_what_cannot_be_generated_is_refused_before_a_pass(
    engine: Engine, prompts: list[list[int]], count: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("musetrace.muse.batch.reference_chain.verify", None)
    with pytest.raises(UsageError, match=message) as caught:
        engine.generate(prompts, count)
    assert "\n" not in str(caught.value)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "small", replace(TARGET, max_position_embeddings=128))


def record(path: Path, **options: object) -> musetrace.RecordingResult:
    with musetrace.record(path) as recorder:
        told = DecodeOptions(**{"steps": 2, "device": "cpu", "batch": 2, **options})  # type: ignore[arg-type]
        decoded = record_decode(recorder, told, lambda done, of: None)
        assert decoded.tokens == 2 * told.batch
        return recorder.close()


@pytest.mark.usefixtures("small")
def test_a_run_has_steps_and_tokens_and_says_why_it_has_no_stamps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = record(tmp_path / "run", model="small", seed=3)
    assert (result.verdict, result.steps, result.launches) == ("complete", 2, 0)
    assert not any(result.losses.values())
    run = musetrace.open(tmp_path / "run")
    assert run.manifest["stamps"] == "off"
    assert (run.manifest["build"]["batch"], run.manifest["build"]["tp"]) == (2, 2)
    steps = run.steps(0).to_pydict()
    assert steps["tokens"] == [2, 2]
    assert all(b > a for a, b in zip(steps["host_begin_ns"], steps["host_end_ns"], strict=True))
    assert all(steps["output"])
    note = "note: a batch of 2 sequences runs on the torch reference"
    for verb in ("info", "report", "check"):
        assert main([verb, str(tmp_path / "run")]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert note in printed
        assert "not on the megakernel: nothing is stamped" in printed
        if verb == "report":
            assert "batch 2, program torch reference" in printed
            assert "there are only host times to report" in printed
    record(tmp_path / "again", model="small", seed=3)
    assert musetrace.open(tmp_path / "again").steps(0)["output"].to_pylist() == steps["output"]


def test_a_batch_of_a_recorded_engine_leaves_a_note(tmp_path: Path) -> None:
    engine = Engine(TARGET, draft=DRAFT, tp=1, blocks=1, capacity=CAPACITY, seed=6)
    with musetrace.record(tmp_path / "run") as recorder:
        engine.attach(recorder)
        engine.generate([[1], [2]], 2)
        recorder.close()
    (note,) = [one["text"] for one in musetrace.open(tmp_path / "run").manifest["reports"]]
    assert note.startswith("a batch of 2 sequences runs on the torch reference")
    assert note.endswith("and none of its steps is in this run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "--batch must be 1 to 16, not 0"),
        ({"batch": 17}, "--batch must be 1 to 16, not 17"),
        ({"steps": 0}, "--steps must be at least 1, not 0"),
        ({"guesses": "tree"}, "--guesses is for the megakernel, and --batch 2 runs on the ordinary chain"),
        ({"launches": "graph"}, "--graph is for the megakernel"),
        ({"layers": 2}, "--layers is for the megakernel"),
        ({"model": "muse-spark-open-tp8-slice", "device": "cuda"}, "is a slice, which decodes no prompt"),
        ({"model": "muse-spark-open"}, "too large for the CPU device; use --model mini"),
        ({"tp": 3}, "use another --tp"),
        ({"device": "cuda", "tp": 2}, "on a GPU the ordinary chain of kernels is one rank, not 2"),
        ({"temperature": 0.0}, "temperature must be above 0, not 0.0"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_one_line(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        record(tmp_path / "run", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_on_a_gpu_rows_of_a_pass_are_dealt_to_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the fake chain, whose tokens follow from all that a sequence has seen."""
    module = fake_cuda.install(monkeypatch)
    config, steps = preset("mini"), 5
    told = DecodeOptions(device="cuda", batch=3, steps=steps, seed=2)
    with musetrace.record(tmp_path / "run") as recorder:
        record_decode(recorder, told, lambda done, of: None)
        assert recorder.close().verdict == "complete"
    (chain,) = module.chains
    assert not module.made
    assert chain.log[:3] == ["head", "rope", "capture pdl True True"]
    # Of three prompts of 96 tokens, and five steps.
    assert chain.log.count("replay") == 3 * 96 // 16 + steps
    head = synthesize_head(config, 2)
    for sequence in range(3):
        text = synthetic_prompt(config.vocab_size, 2 + sequence).tolist()
        rows = [row.tobytes() for row in embed(config, head, torch.tensor(text)).numpy()]
        for _ in range(steps):
            text.append(next_token(rows, config.vocab_size))
            rows.append(embed(config, head, torch.tensor(text[-1:])).numpy().tobytes())
        assert [chain.caches[sequence][place] for place in range(len(rows))] == rows
    run = musetrace.open(tmp_path / "run")
    assert run.manifest["build"]["program"].startswith("chain of ordinary kernels")
    assert run.manifest["device"]["kind"] == "cuda"


def test_a_gpu_that_fails_or_is_too_small_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake_cuda.install(monkeypatch)
    engine = Engine("mini", device="cuda", tp=2, capacity=128)
    first = engine.generate([[1, 2], [3]], 3)
    assert [len(tokens) for tokens in first] == [3, 3]
    # The engine has two ranks, its chain all weights of one.
    assert module.chains[0].shape["ranks"] == 1
    assert engine.generate([[1, 2], [3]], 3) == first
    assert len(module.chains) == 1
    module.chains[0].failure = "device lost\nit is gone"
    with pytest.raises(DeviceError, match="the GPU failed with model mini: device lost it is gone; see"):
        engine.generate([[1, 2], [3]], 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 2 << 30))
    with pytest.raises(DeviceError, match="KV cache.*use a smaller --batch or another --model"):
        engine.generate([[1], [2], [3]], 2)


def test_the_chain_on_the_cpu_reads_a_checkpoint(tmp_path: Path) -> None:
    from musetrace.muse.checkpoint.writing import write_draft, write_model
    from musetrace.muse.draft.weights import synthesize_draft

    write_model(tmp_path, synthesize(TARGET, seed=8))
    write_draft(tmp_path / "draft", synthesize_draft(DRAFT, seed=8))
    told = {"draft": DRAFT, "tp": 1, "blocks": 1, "capacity": CAPACITY}
    read, made = Engine(TARGET, checkpoint=tmp_path, **told), Engine(TARGET, seed=8, **told)
    prompts = [prompt_of(3), prompt_of(20)]
    assert read.generate(prompts, 3) == made.generate(prompts, 3)
