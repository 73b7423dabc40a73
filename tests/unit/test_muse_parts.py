"""Attention, rotary embedding, expert selection and residual gate against plain Python."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from musetrace.muse import PRESETS, MuseConfig
from musetrace.muse.attention import attend, visible
from musetrace.muse.moe import select
from musetrace.muse.norms import residual_gate
from musetrace.muse.rope import apply_rope, rope_tables

CONFIG = PRESETS["mini"]
SLIDING, GLOBAL = 1, 3


# Attention


def slow_attention(
    config: MuseConfig, layer: int, q: Tensor, k: Tensor, v: Tensor
) -> list[list[list[float]]]:
    """Scores, softmax and sum, one number at a time."""
    tokens, heads, dim = q.shape
    positions = k.shape[1]
    result = []
    for token in range(tokens):
        position = positions - tokens + token
        rows = []
        for head in range(heads):
            kv = head // (heads // k.shape[0])
            first = 0 if config.is_global(layer) else max(0, position - config.sliding_window + 1)
            keys = range(first, position + 1)
            scores = [
                sum(float(q[token, head, i]) * float(k[kv, key, i]) for i in range(dim)) / math.sqrt(dim)
                for key in keys
            ]
            weights = [math.exp(score - max(scores)) for score in scores]
            rows.append(
                [
                    sum(w * float(v[kv, key, i]) for w, key in zip(weights, keys, strict=True)) / sum(weights)
                    for i in range(dim)
                ]
            )
        result.append(rows)
    return result


@pytest.mark.parametrize("layer", [SLIDING, GLOBAL])
@pytest.mark.parametrize(("positions", "window"), [(3, 5), (9, 5), (9, 1)])
def test_attention_is_the_slow_one(layer: int, positions: int, window: int) -> None:
    config = replace(CONFIG, num_hidden_layers=4, head_dim=4, sliding_window=window)
    generator = torch.Generator().manual_seed(positions)
    q = torch.randn(3, 8, 4, generator=generator) * 2
    k, v = torch.randn(2, 4, positions, 4, generator=generator)
    expected = torch.tensor(slow_attention(config, layer, q, k, v))
    assert torch.allclose(attend(config, layer, q, k, v), expected, atol=2e-6)


@settings(deadline=None)
@given(start=st.integers(0, 40), tokens=st.integers(1, 20), window=st.integers(1, 30))
def test_visible_keys(start: int, tokens: int, window: int) -> None:
    config = replace(CONFIG, sliding_window=window)
    for layer in (SLIDING, GLOBAL):
        mask = visible(config, layer, start, tokens)
        for row, column in ((row, column) for row in range(tokens) for column in range(start + tokens)):
            distance = start + row - column
            expected = distance >= 0 and (config.is_global(layer) or distance < window)
            assert bool(mask[row, column]) == expected


def test_rope_keeps_distances_only() -> None:
    """The product of a rotated q and k depends on how far apart they stand, and on nothing else."""
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, 1, 64, generator=generator)

    def product(at_q: int, at_k: int) -> float:
        rotated_q = apply_rope(q, rope_tables(CONFIG, torch.tensor([at_q])))
        rotated_k = apply_rope(k, rope_tables(CONFIG, torch.tensor([at_k])))
        return float((rotated_q.double() * rotated_k.double()).sum())

    assert product(5, 5) == pytest.approx(float((q * k).sum()), rel=1e-5)
    assert product(107, 100) == pytest.approx(product(7, 0), rel=1e-4)
    assert product(7, 0) != pytest.approx(product(8, 0), rel=1e-2)


# Routing


@settings(deadline=None)
@given(data=st.data())
def test_selection_and_weights(data: st.DataObject) -> None:
    """Scores from few values, so that most cases have ties."""
    experts = data.draw(st.integers(1, 8))
    top_k = data.draw(st.integers(1, experts))
    config = replace(
        CONFIG,
        num_local_experts=experts,
        num_experts_per_tok=top_k,
        routed_scaling_factor=data.draw(st.sampled_from([1.0, 2.5])),
    )
    quarters = st.lists(st.integers(0, 4), min_size=experts, max_size=experts)
    scores, bias = ([value / 4 for value in data.draw(quarters)] for _ in range(2))
    chosen, weights = select(torch.tensor([scores]), torch.tensor(bias), config)
    order = sorted(range(experts), key=lambda expert: (-(scores[expert] + bias[expert]), expert))[:top_k]
    assert chosen[0].tolist() == order
    total = sum(scores[expert] for expert in order) + 1e-15
    expected = [scores[expert] / total * config.routed_scaling_factor for expert in order]
    assert weights[0].tolist() == pytest.approx(expected, rel=1e-6)


# Residual gate


def test_residual_gate_against_its_formula() -> None:
    gates = [-3.0, -0.6, -0.1, 0.0, 0.2, 1.0, 3.0]
    alpha, beta = residual_gate(torch.tensor(gates), 0.3)
    for index, gate in enumerate(gates):
        open_share = 1 / (1 + math.exp(-gate / 0.3))
        closed_share = 1 / (1 + math.exp(gate / 0.3))
        assert float(beta[index]) == pytest.approx(open_share, rel=1e-6)
        assert float(alpha[index]) == pytest.approx(
            math.sqrt(max(closed_share * (1 + open_share), 1e-3)), rel=1e-6
        )
    assert float(alpha[-1]) == pytest.approx(math.sqrt(1e-3))
