"""The model configuration: presets, what tp divides, JSON, and that none of it needs torch."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.errors import UsageError
from musetrace.muse import PRESETS, MuseConfig, preset

MINI = PRESETS["mini"]


def test_import_and_use_need_no_torch() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from musetrace.muse.config import preset\n"
        "preset('mini').validate(2)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_presets_are_called_by_their_keys() -> None:
    assert set(PRESETS) == {"mini", "muse-spark-open", "muse-spark-open-tp8-slice"}
    for name, config in PRESETS.items():
        assert config.name == name
        assert preset(name) is config


def test_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="mini, muse-spark-open, muse-spark-open-tp8-slice"):
        preset("maxi")


def test_layers_of_the_public_model() -> None:
    config = preset("muse-spark-open")
    kinds = [config.layer_kind(layer) for layer in range(62)]
    # Layers 1, 5, ..., 61 are global: 16 of them, and 46 sliding.
    assert [layer for layer, kind in enumerate(kinds) if kind == "global"] == list(range(1, 62, 4))
    formats = [config.expert_format(layer) for layer in range(62)]
    assert formats == ["bf16"] + ["nvfp4"] * 60 + ["bf16"]
    # 45 sliding and 15 global layers with NVFP4 experts.
    assert sum(pair == ("sliding", "nvfp4") for pair in zip(kinds, formats, strict=True)) == 45


def test_mini_has_every_kind_of_layer() -> None:
    pairs = {(MINI.layer_kind(layer), MINI.expert_format(layer)) for layer in range(MINI.num_hidden_layers)}
    assert pairs == {("sliding", "bf16"), ("sliding", "nvfp4"), ("global", "nvfp4"), ("global", "bf16")}
    assert MINI.sliding_window < MINI.max_position_embeddings
    assert MINI.output_multiplier == pytest.approx(1 / math.sqrt(MINI.hidden_size / 256))


@pytest.mark.parametrize("layer", [-1, 8])
def test_a_layer_that_is_not_there(layer: int) -> None:
    with pytest.raises(UsageError, match="layers 0 to 7"):
        MINI.is_global(layer)
    with pytest.raises(UsageError, match="layers 0 to 7"):
        MINI.expert_format(layer)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_mini_splits(tp: int) -> None:
    MINI.validate(tp)


@pytest.mark.parametrize(("tp", "field"), [(8, "num_key_value_heads"), (3, "num_attention_heads")])
def test_mini_does_not_split(tp: int, field: str) -> None:
    with pytest.raises(UsageError, match=field):
        MINI.validate(tp)


@pytest.mark.parametrize("tp", [0, -1, True, 2.0, "2", None])
def test_tp_is_a_positive_whole_number(tp: object) -> None:
    with pytest.raises(UsageError, match="positive whole number"):
        MINI.validate(tp)  # type: ignore[arg-type]


def test_the_slice_is_one_rank_of_eight() -> None:
    config = preset("muse-spark-open-tp8-slice")
    config.validate(8)
    for tp in (1, 2, 16):
        with pytest.raises(UsageError, match="--tp 8"):
            config.validate(tp)
    assert replace(config, name="muse-spark-open", slice_tp=None) == preset("muse-spark-open")


@settings(deadline=None)
@given(
    tp=st.integers(1, 20),
    factors=st.tuples(*[st.sampled_from([1, 2, 3, 4, 6, 8, 12]) for _ in range(6)]),
)
def test_validate_is_exactly_divisibility(tp: int, factors: tuple[int, ...]) -> None:
    kv_heads, groups, experts, moe, inner, vocab = factors
    config = replace(
        MINI,
        num_key_value_heads=kv_heads,
        num_attention_heads=kv_heads * groups,
        num_local_experts=experts,
        num_experts_per_tok=1,
        moe_hidden_size=16 * moe,
        moe_intermediate_size=16 * inner,
        vocab_size=vocab,
    )
    # A share of a moe width is a whole number of 16s exactly if tp divides the number of 16s.
    fits = all(number % tp == 0 for number in (kv_heads, kv_heads * groups, experts, moe, inner, vocab))
    if fits:
        config.validate(tp)
    else:
        with pytest.raises(UsageError):
            config.validate(tp)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", -512),
        ("hidden_size", 512.0),
        ("hidden_size", "512"),
        ("hidden_size", True),
        ("hidden_size", None),
        ("hidden_size", 2**40),
        ("rms_norm_eps", 0.0),
        ("rms_norm_eps", math.nan),
        ("rms_norm_eps", math.inf),
        ("rms_norm_eps", "1e-5"),
        ("slice_tp", 0),
        ("name", ""),
        ("name", 7),
        ("name", "x" * 101),
        ("num_attention_heads", 6),
        ("num_key_value_heads", 3),
        ("head_dim", 63),
        ("moe_hidden_size", 264),
        ("moe_intermediate_size", 8),
        ("num_experts_per_tok", 17),
    ],
)
def test_impossible_dimensions_are_refused(field: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        MuseConfig.from_json(MINI.to_json() | {field: value})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_json_round_trip(config: MuseConfig) -> None:
    assert MuseConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_json_with_missing_or_unknown_fields() -> None:
    data = MINI.to_json()
    with pytest.raises(UsageError, match="extra"):
        MuseConfig.from_json(data | {"extra": 1})
    data.pop("vocab_size")
    with pytest.raises(UsageError, match="vocab_size"):
        MuseConfig.from_json(data)
    with pytest.raises(UsageError, match="JSON object"):
        MuseConfig.from_json([])  # type: ignore[arg-type]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(changes=st.dictionaries(st.sampled_from([*MINI.to_json()]), JSON_VALUES, max_size=3))
def test_any_json_is_read_or_refused(changes: dict[str, object]) -> None:
    try:
        config = MuseConfig.from_json(MINI.to_json() | changes)
    except UsageError:
        return
    assert MuseConfig.from_json(config.to_json()) == config
