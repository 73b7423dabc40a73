"""The sample that trains `mini`: its models are those of the references, and its parts fit together."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from musetrace.errors import UsageError
from musetrace.muse.cache import KvCache
from musetrace.muse.checkpoint.shares import CheckpointShares
from musetrace.muse.draft.reference import add_context, features_of, guess
from musetrace.muse.reference import verify
from musetrace.muse.rounding import Rounding
from musetrace.muse.tokenizer import Tokenizer
from tests.unit.test_speculative_reference import DRAFT, TARGET

CONFIG = replace(TARGET, vocab_size=300, sliding_window=12)
DRAFT_CONFIG = replace(DRAFT, mask_token_id=299, sliding_window=20)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(scope="module")
def sample(repository: Path) -> Iterator[dict[str, ModuleType]]:
    """The sample's modules, which it imports from its own folder."""
    names = ("corpus", "learn_merges", "target", "draft", "run")
    sys.path.insert(0, str(repository / "samples" / "train_mini"))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.pop(0)
        for name in names:
            sys.modules.pop(name, None)


def random_target(sample: dict[str, ModuleType]) -> torch.nn.Module:
    """A target none of whose vectors is trivial."""
    torch.manual_seed(1)
    target: torch.nn.Module = sample["target"].Target(CONFIG).eval()
    with torch.no_grad():
        for value in target.parameters():
            if value.dim() == 1:
                value += 0.1 * torch.randn_like(value)
            else:
                # As exported, so that both compute with the same numbers.
                value.copy_(value.bfloat16())
        for layer in target.layers:
            layer.router_bias += 0.1 * torch.randn_like(layer.router_bias)
    target.quantise = True
    return target


def difference(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max() / want.square().mean().sqrt())


@torch.no_grad()
def test_the_trained_models_are_the_references(sample: dict[str, ModuleType]) -> None:
    target = random_target(sample)
    draft = sample["draft"].Draft(DRAFT_CONFIG).eval()
    for value in draft.parameters():
        value.copy_((value + 0.1 * torch.randn_like(value) * (value.dim() == 1)).bfloat16())
    ids = torch.randint(CONFIG.vocab_size, (2, 64))
    logits, states = target(ids)
    model, weights = target.exported(), draft.exported()
    features = torch.cat([states[layer] for layer in DRAFT_CONFIG.target_layer_ids], dim=-1)
    roots = torch.tensor([3, 40, 48])
    guesses = draft(target, ids, features, roots)
    for text in range(2):
        result = verify(model, ids[text], 0, KvCache.empty(CONFIG, 64), Rounding.NONE)
        assert difference(logits[text], result.logits) < 1e-4
        own = features_of(DRAFT_CONFIG, result.hidden_states, Rounding.NONE)
        for block, root in enumerate(roots.tolist()):
            kv = KvCache.empty(DRAFT_CONFIG, 64)
            add_context(weights, own[:root], 0, kv, Rounding.NONE)
            token = int(ids[text, root])
            want = guess(weights, CONFIG, model.head, token, root, kv, Rounding.NONE)
            assert difference(guesses[text, block], want.logits) < 1e-3


def test_a_few_steps_train_write_and_decode(
    sample: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--device cpu --steps 24 --draft-steps 16 --batch 4 --positions 48 --blocks 2 --texts 4"
    told = sample["run"].options(["-o", str(tmp_path), *words.split(), "--new-tokens", "12"])
    sample["run"].train(told, CONFIG, DRAFT_CONFIG)
    said = capsys.readouterr().out.splitlines()
    losses = {line.split()[0]: [] for line in said if " loss " in line}
    for line in said:
        if " loss " in line:
            losses[line.split()[0]].append(float(line.split(" loss ")[1].split(",")[0]))
    for first, last in losses.values():
        assert last < first
    assert "tokens in" in said[-1]
    CheckpointShares(tmp_path, CONFIG).layer(1, 0, 1)
    assert Tokenizer.load(tmp_path).vocab_size == CONFIG.vocab_size


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    tokenizer = Tokenizer([(104, 101), (256, 108), (32, 257)], 300)
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert all(0 <= token < 298 for token in tokens)


def test_merges_are_learned_by_frequency_and_applied_in_their_order(sample: dict[str, ModuleType]) -> None:
    learned = sample["learn_merges"].learn(["aaab aaab aaab", "bb"], 261)
    # "aa" is in each of three words twice, then "ab" once; " aaab" is a word of its own.
    assert learned.merges[0] == (97, 97)
    assert learned.decode(learned.encode("aaab bb")) == "aaab bb"
    assert len(learned.encode("aaab")) < 4
    assert learned.decode([learned.mask_id, 97, learned.end_id]) == "a"


@pytest.mark.parametrize("text", ["", "[]", '{"vocab_size": 300, "merges": [[1]]}', '{"merges": []}'])
def test_what_is_no_tokenizer_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UsageError, match="is no tokenizer"):
        Tokenizer.load(tmp_path)
    with pytest.raises(UsageError, match="tokens that do not come before it"):
        Tokenizer([(1, 300)], 400)
    with pytest.raises(UsageError, match="2 merges do not fit a vocabulary of 259 tokens"):
        Tokenizer([(1, 2), (3, 4)], 259)
