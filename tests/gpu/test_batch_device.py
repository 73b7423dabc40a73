"""Several sequences on the chain of ordinary kernels on a real GPU, beside each of them alone."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import musetrace
from musetrace.muse import cuda_device
from musetrace.muse.batch.generation import BatchGeneration
from musetrace.muse.batch.ordinary_chain import OrdinaryChain, PassRows
from musetrace.muse.config import preset
from musetrace.muse.cuda_model import UploadedShares
from musetrace.muse.cuda_weights import addresses, load_chain, rope_table
from musetrace.muse.decode import DecodeOptions, record_decode
from musetrace.muse.device import TOKENS, shape_of
from musetrace.muse.engine import Engine
from musetrace.muse.reference import KvCache, Rounding, embed, verify
from musetrace.muse.sharding import WholeShares
from musetrace.muse.speculative.sampling import Sampling, choose
from musetrace.muse.weights import ModelWeights, synthesize
from tests.gpu.test_whole_steps_device import prompt_of

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("one_torch_thread", "cuda")]

MINI, CAPACITY, COUNT, SEED = preset("mini"), 512, 40, 4
# A token, a pass, several of them, and longer than the window of 64.
LENGTHS = (1, 16, 37, 90)


@pytest.fixture(scope="module")
def engine(cuda: ModuleType) -> Engine:
    return Engine(MINI, device="cuda", tp=1, capacity=CAPACITY, seed=SEED, budget_ns=300_000_000)


@pytest.fixture(scope="module")
def weights(cuda: ModuleType) -> ModelWeights:
    return synthesize(MINI, SEED)


class OneSequence:
    """The chain as `layer_bench` times it: 16 rows of one sequence, launched kernel by kernel."""

    def __init__(self, cuda: ModuleType, weights: ModelWeights) -> None:
        shares, layers = UploadedShares(WholeShares(weights), 1, cuda_device.GPU), 8
        self._weights, self._kept = weights, [shares.layer(0, layer) for layer in range(layers)]
        head, rope = shares.head(0), rope_table(MINI, CAPACITY, cuda_device.GPU)
        self.chain: Any = cuda.BaselineChain(shape_of(MINI, 1, 132, CAPACITY, layers))
        load_chain(self.chain, MINI, map(addresses, self._kept), addresses(head), rope.data_ptr())
        self._kept += [head, {"rope": rope}]
        torch.cuda.synchronize()

    def text_logits(self, text: list[int]) -> NDArray[np.float32]:
        """Of a whole text, 16 tokens a pass."""
        starts = range(0, len(text), TOKENS)
        return np.concatenate([self.logits(text[start : start + TOKENS], start) for start in starts])

    def logits(self, ids: list[int], position: int) -> NDArray[np.float32]:
        """Of at most 16 tokens, from ``position`` on."""
        padded = torch.tensor(ids + [0] * (TOKENS - len(ids)))
        self.chain.set_position(position)
        self.chain.set_residual(embed(MINI, self._weights.head, padded).numpy())
        self.chain.run_entry()
        for layer in range(MINI.num_hidden_layers):
            self.chain.run_layer(layer)
        self.chain.run_head()
        return np.asarray(self.chain.logits())[: len(ids)]


def batch_chain(engine: Engine, sequences: int) -> OrdinaryChain:
    engine.generate([[1]] * sequences, 1)
    assert engine._chain is not None
    assert engine._chain.chain.sequences == sequences
    return engine._chain.chain


def test_a_sequence_has_the_logits_that_it_has_alone_bit_for_bit(
    cuda: ModuleType, weights: ModelWeights, engine: Engine
) -> None:
    """Whoever its neighbours are, wherever its rows are and however its text is cut into passes."""
    alone = OneSequence(cuda, weights)
    text = prompt_of(120)
    want = alone.text_logits(text)
    shifted = [alone.logits(text[start : start + 16], start) for start in (0, *range(5, 120, 16))]
    assert np.concatenate([shifted[0][:5], *shifted[1:]]).tobytes() == want.tobytes()
    chain = batch_chain(engine, 3)
    others = [prompt_of(111), prompt_of(112)]
    rng, done = np.random.default_rng(0), [0, 0, 0]
    texts = [others[0], text, others[1]]
    got = np.empty_like(want)
    while done[1] < len(text):
        share = rng.multinomial(TOKENS, [1 / 3] * 3)
        parts = [(one, min(int(n), len(texts[one]) - done[one])) for one, n in enumerate(share)]
        parts = [(one, n) for one, n in parts if n]
        rows = [(texts[one][done[one] + i], one, done[one] + i) for one, n in parts for i in range(n)]
        if not rows:
            continue
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        logits = chain.run(PassRows(*columns))
        for one, n in parts:
            if one == 1:
                got[done[1] : done[1] + n] = logits[columns[1] == 1]
            done[one] += n
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("sampling", [None, Sampling(0.8, 5)])
def test_tokens_of_a_batch_are_those_of_each_sequence_alone(
    cuda: ModuleType, weights: ModelWeights, engine: Engine, sampling: Sampling | None
) -> None:
    alone = OneSequence(cuda, weights)
    prompts = [prompt_of(length) for length in LENGTHS]
    made = engine.generate(prompts, COUNT, sampling)
    assert made[:2] == engine.generate(prompts[:2], COUNT, sampling)
    for prompt, tokens in zip(prompts, made, strict=True):
        text = prompt + tokens
        logits = alone.text_logits(text)[len(prompt) - 1 : -1]
        positions = np.arange(len(prompt), len(text))
        assert choose(logits, positions, sampling).tolist() == tokens


def test_logits_of_the_chain_are_those_of_the_reference(cuda: ModuleType, weights: ModelWeights) -> None:
    """It rounds where the reference does, and sums in an order of its own; a row's error in its rms."""
    text = prompt_of(120)
    cache = KvCache.empty(MINI, CAPACITY)
    want = verify(weights, torch.tensor(text), 0, cache, Rounding.BF16).logits.numpy()
    got = OneSequence(cuda, weights).text_logits(text)

    def errors(logits: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.sqrt(((logits - want) ** 2).mean(axis=1) / (want**2).mean(axis=1))

    # A token whose router is near a tie may take another expert, and is then far off: a few may.
    assert np.median(errors(got)) < 5e-2, np.sort(errors(got))
    assert np.quantile(errors(got), 0.8) < 2e-1, np.sort(errors(got))
    assert np.median(errors(np.roll(got, 1, axis=0))) > 0.5


def test_sixteen_sequences_and_a_full_cache(engine: Engine) -> None:
    chain = batch_chain(engine, 16)
    prompts = [prompt_of(CAPACITY - 3), *(prompt_of(20 + number) for number in range(15))]
    generation = BatchGeneration(chain, prompts)
    first = [generation.step() for _ in range(3)]
    assert [generation.step() for _ in range(3)] == first


def test_a_recorded_batch_says_what_ran(tmp_path: Path) -> None:
    with musetrace.record(tmp_path / "run") as recorder:
        made = record_decode(recorder, DecodeOptions(device="cuda", steps=4, batch=5), lambda done, of: None)
        assert recorder.close().verdict == "complete"
    run = musetrace.open(tmp_path / "run")
    assert made.tokens == 20
    assert run.steps(0)["tokens"].to_pylist() == [5] * 4
    assert run.manifest["build"]["program"].startswith("chain of ordinary kernels")
    (note,) = [one["text"] for one in run.manifest["reports"]]
    assert note.startswith("a batch of 5 sequences runs on the chain of ordinary kernels")


def test_rows_that_no_sequence_has_are_refused(cuda: ModuleType) -> None:
    chain = cuda.BaselineChain(shape_of(MINI, 1, 132, CAPACITY, 8), sequences=2)
    for sequences, positions, message in (
        ([0] * 15, [0] * 15, "a pass has 16 rows"),
        ([0] * 15 + [2], [0] * 16, "row 15 is at position 0 of sequence 2; there are 2 of 512"),
        ([0] * 16, [CAPACITY] + [0] * 15, "row 0 is at position 512"),
    ):
        with pytest.raises(ValueError, match=message):
            chain.set_rows(sequences, positions)
    for count in (0, 17):
        with pytest.raises(ValueError, match="sequences must be 1 to 16"):
            cuda.BaselineChain(shape_of(MINI, 1, 132, CAPACITY, 8), sequences=count)
