"""Decode steps on the CPU device, and that a recording of them shows what happened."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import musetrace
from musetrace.analysis.timeline.steps import step_parts
from musetrace.errors import UsageError
from musetrace.muse.checkpoint.writing import write_draft, write_model
from musetrace.muse.config import preset
from musetrace.muse.decode import DecodeOptions, Decoder, accepted_tokens, record_decode
from musetrace.muse.device import TOKENS
from musetrace.muse.draft.config import draft_of
from musetrace.muse.draft.weights import synthesize_draft
from musetrace.muse.engine import Engine
from musetrace.muse.prompt import synthetic_prompt
from musetrace.muse.tokenizer import Tokenizer
from musetrace.muse.weights import synthesize


def slow_accepted(verified: list[int], predicted: list[int]) -> int:
    kept = 1
    for place in range(1, len(verified)):
        if verified[place] != predicted[place - 1]:
            break
        kept += 1
    return kept


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=TOKENS))
def test_accepted_tokens_equals_a_walk_along_the_guesses(pairs: list[tuple[int, int]]) -> None:
    verified, predicted = ([pair[side] for pair in pairs] for side in (0, 1))
    got = accepted_tokens(np.asarray(verified), np.asarray(predicted))
    assert got == slow_accepted(verified, predicted)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine("mini", tp=2, blocks=2, seed=1, capacity=160)


def test_speculative_tokens_equal_plain_greedy_tokens(engine: Engine) -> None:
    prompt = synthetic_prompt(engine.config.vocab_size, 1)
    plain = Decoder(engine, prompt)
    expected = []
    for step in range(12):
        # Guesses that cannot be right: plain greedy decoding, one token a pass.
        plain._next[1:] = (plain._next[1:] + 1 + step) % engine.config.vocab_size
        plain._next[1] = -1 % engine.config.vocab_size
        expected += plain.step(step)[:1]
        plain._position = prompt.size + step + 1
        plain._next[0] = expected[-1]
    decoder = Decoder(engine, prompt)
    got: list[int] = []
    while len(got) < len(expected):
        got += decoder.step(0)
    assert got[: len(expected)] == expected


def test_a_full_cache_starts_again_behind_the_prompt(engine: Engine) -> None:
    decoder = Decoder(engine, synthetic_prompt(engine.config.vocab_size, 1))
    first = decoder.step(0)
    decoder._position = engine.device.capacity - TOKENS + 1
    assert decoder.step(1) == first


def test_a_prefill_within_a_recording_is_neither_recorded_nor_lost(engine: Engine, tmp_path: Path) -> None:
    decoder = Decoder(engine, synthetic_prompt(engine.config.vocab_size, 1))
    with musetrace.record(tmp_path / "run") as recorder:
        engine.attach(recorder)
        for step in range(3):
            decoder._position = engine.device.capacity - TOKENS + 1
            decoder.step(step)
        result = recorder.close()
    engine.detach()
    assert (result.launches, result.lost_launches) == (3 * 10 * 2, 0)


def record(path: Path, **options: object) -> musetrace.RecordingResult:
    with musetrace.record(path) as recorder:
        told = DecodeOptions(**{"steps": 2, "device": "cpu", **options})  # type: ignore[arg-type]
        record_decode(recorder, told, lambda done, of: None)
        return recorder.close()


@pytest.mark.parametrize("tp", [1, 4])
def test_a_recording_holds_every_launch_and_no_odd_stamp(tmp_path: Path, tp: int) -> None:
    result = record(tmp_path / "run", tp=tp, blocks=1)
    # fc and context, five draft layers, lm_head, tree; the pass; accept.
    launches_per_step = 8 + 1 + 8 + 1 + 1
    assert (result.verdict, result.ranks, result.steps) == ("complete", tp, 2)
    assert result.launches == 2 * launches_per_step * tp
    assert not any(result.losses.values())
    run = musetrace.open(tmp_path / "run")
    kinds = run.launches(0).column("kind").to_pylist()[:launches_per_step]
    layers = ["sliding", "sliding", "sliding", "global"] * 2
    draft = ["draft_context", *["draft_layer"] * 5, "draft_head", "draft_tree"]
    assert kinds == [*draft, "entry", *layers, "head", "accept"]
    parts = {row["part"]: row["launches_p50"] for row in step_parts(run).to_pylist()}
    assert parts == {"step": 19, "draft": 8, "verify": 10, "accept": 1}
    assert sum(run.spans(0, step).num_rows for step in run.step_ids(0)) * 2 * tp == result.stamps


def test_without_guesses_a_recorded_step_is_a_verify_pass(tmp_path: Path) -> None:
    assert record(tmp_path / "run", guesses="none", steps=1).verdict == "complete"
    run = musetrace.open(tmp_path / "run")
    layers = ["sliding", "sliding", "sliding", "global"] * 2
    assert run.launches(0).column("kind").to_pylist() == ["entry", *layers, "head"]
    assert run.manifest["build"]["guesses"] == "none"
    assert {one["kind"] for one in run.manifest["job_bytes"]} == {"entry", "sliding", "global", "head"}


def test_a_recording_without_stamps_still_has_launches_and_steps(tmp_path: Path) -> None:
    with musetrace.record(tmp_path / "run", stamps="off") as recorder:
        record_decode(recorder, DecodeOptions(steps=2, device="cpu"), lambda done, of: None)
    run = musetrace.open(tmp_path / "run")
    assert run.launches(0).num_rows == 2 * 19
    assert run.spans(0, 0).num_rows == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "muse-spark-open"}, "too large for the CPU device; use --model mini"),
        ({"model": "muse-spark-open-tp8-slice"}, "too large for the CPU device; use --model mini"),
        ({"tp": 3}, "use another --tp"),
        ({"model": "muse-spark-open-tp8-slice", "tp": 4}, "not of 4; use --tp 8 or a whole model"),
        ({"blocks": 0}, "blocks must be at least 1, not 0"),
        ({"steps": 0}, "--steps must be at least 1, not 0"),
        ({"layers": 2}, "layers 2 is for the GPU"),
        ({"launches": "graph"}, "launches graph is for the GPU"),
        ({"stop4": "sumsq"}, "stop4 sumsq is for the GPU"),
        ({"temperature": 0.0}, "temperature must be above 0, not 0.0"),
        ({"guesses": "bush"}, "guesses is tree, chain or none, not 'bush'"),
        ({"stop4": "half"}, "stop4 is sumsq or gather, not 'half'"),
        ({"context": 64}, "--context is for a slice"),
        ({"model": "muse-spark-open-tp8-slice", "context": -1}, "--context must be 0 to 1048560"),
        ({"device": "tpu"}, "choose auto, cpu or cuda"),
        ({"model": "maxi"}, "no model is called 'maxi'"),
    ],
)
def test_what_cannot_be_decoded_is_refused_in_one_line(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        record(tmp_path / "run", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("one_torch_thread")
def test_weights_with_a_tokenizer_decode_text(tmp_path: Path) -> None:
    config = preset("mini")
    write_model(tmp_path / "w", synthesize(config, seed=2))
    write_draft(tmp_path / "w" / "draft", synthesize_draft(draft_of(config), seed=2))
    Tokenizer([(116, 104), (256, 101)], config.vocab_size).save(tmp_path / "w")
    options = DecodeOptions(device="cpu", steps=2, weights=str(tmp_path / "w"), prompt="the end of the world")
    with musetrace.record(tmp_path / "run") as recorder:
        decoded = record_decode(recorder, options, lambda done, of: None)
    assert (decoded.prompt, decoded.text is None) == ("the end of the world", False)
    drawn = []
    for run in ("a", "b"):
        with musetrace.record(tmp_path / run) as other:
            told = replace(options, temperature=1.0, seed=4)
            drawn.append(record_decode(other, told, lambda done, of: None).text)
    assert drawn[0] == drawn[1] != decoded.text
    assert decoded.tokens == musetrace.open(tmp_path / "run").steps(0).column("tokens").to_numpy().sum()
    assert musetrace.open(tmp_path / "run").manifest["model"]["weights"] == "checkpoint"
    for changed, message in (
        ({"prompt": "the"}, "--prompt has 1 tokens; give a text of 16 at least"),
        ({"weights": None}, "--prompt needs a tokenizer"),
        ({"weights": str(tmp_path / "none")}, "--prompt needs a tokenizer"),
        ({"weights": str(tmp_path / "none"), "prompt": None}, "is no checkpoint"),
    ):
        with pytest.raises(UsageError, match=message):
            record_decode(recorder, replace(options, **changed), lambda done, of: None)  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "w" / "draft")
    for batch, changed, message in (
        (1, {"prompt": "the end " * 500}, "a prompt of .* tokens and 1 new ones need a cache of"),
        (1, {}, "draft is no checkpoint"),
        (2, {"prompt": "the end " * 500}, "prompt 0 of the batch: .* need a cache of"),
    ):
        # Refused before there is a run.
        told = replace(options, batch=batch, **changed)  # type: ignore[arg-type]
        with musetrace.record(tmp_path / "none") as refused, pytest.raises(UsageError, match=message):
            record_decode(refused, told, lambda done, of: None)
        assert not (tmp_path / "none").exists()
