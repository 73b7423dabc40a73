"""The draft as the GPU is given it: packed weights, how its work is dealt, and the launches of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from musetrace import _core
from musetrace.job_table import JobTable
from musetrace.muse.config import preset
from musetrace.muse.cuda_draft import (
    MATRICES,
    VECTORS,
    RandomDraft,
    WholeDraft,
    draft_bytes,
    padded_columns,
    random_embedding,
)
from musetrace.muse.cuda_tables import step_table, table_of_report
from musetrace.muse.device import draft_shape_of, shape_of
from musetrace.muse.draft.config import draft_of
from musetrace.muse.draft.sharding import shard_draft
from musetrace.muse.draft.weights import synthesize_draft
from musetrace.muse.launch_plan import gpu_step_plan, step_plan
from musetrace.muse.packing import unpack_bf16
from musetrace.muse.packing_layout import padded_width
from musetrace.muse.speculative.tree import TokenTree

pytestmark = pytest.mark.usefixtures("one_torch_thread")

CPU = torch.device("cpu")
MINI = preset("mini")
DRAFT = draft_of(MINI)
SLICE = preset("muse-spark-open-tp8-slice")
every_tp = pytest.mark.parametrize("tp", [1, 2, 4])


def bits(tensor: Tensor) -> np.ndarray:
    return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)


# Weights


@every_tp
def test_packed_matrices_hold_the_ranks_shares(tp: int) -> None:
    weights = synthesize_draft(DRAFT, seed=2)
    source = WholeDraft(weights, MINI, tp, torch.zeros(8, DRAFT.hidden_size, dtype=torch.bfloat16))
    for rank in range(tp):
        share, packed = shard_draft(weights, MINI, rank, tp), source.layer(rank, 1)
        assert packed.keys() == {*MATRICES, *VECTORS}
        for name in MATRICES:
            matrix = getattr(share.layers[1], name)
            assert (unpack_bf16(packed[name].numpy(), *matrix.shape) == bits(matrix)).all(), name
        for name in VECTORS:
            assert packed[name].equal(getattr(share.layers[1], name))
        fc = unpack_bf16(source.outer(rank)["fc"].numpy(), DRAFT.hidden_size, padded_width(share.fc.shape[1]))
        assert (fc[:, : share.fc.shape[1]] == bits(share.fc)).all()
        assert (fc[:, share.fc.shape[1] :] == 0).all()


@given(st.integers(1, 90))
def test_columns_are_filled_up_to_whole_stages(chunks: int) -> None:
    columns = 32 * chunks
    padded = padded_columns(torch.ones(2, columns, dtype=torch.bfloat16))
    assert padded.shape[1] % (columns if columns < 512 else 512) == 0
    assert columns <= padded.shape[1] < columns + 512
    assert int(padded.sum()) == 2 * columns


@every_tp
def test_bytes_are_those_of_the_tensors(tp: int) -> None:
    source = RandomDraft(DRAFT, tp, 0, random_embedding(MINI, 0, CPU))
    outer = source.outer(0)
    tensors = [*(source.layer(0, n) for n in range(DRAFT.num_hidden_layers)), outer]
    made = sum(tensor.nbytes for of in tensors for tensor in of.values())
    assert made == draft_bytes(DRAFT, MINI, tp)


# How work is dealt


def dealt(tp: int, blocks: int) -> tuple[dict[str, int], list[dict[str, Any]]]:
    shapes = shape_of(MINI, tp, blocks, 512, 8), draft_shape_of(DRAFT, tp)
    plan = _core.megakernel.draft_plan(*shapes)
    return plan, [_core.megakernel.draft_shares(*shapes, block) for block in range(blocks)]


@given(st.sampled_from([1, 2, 4]), st.integers(4, 132))
def test_every_tile_of_every_slice_has_one_block(tp: int, blocks: int) -> None:
    plan, shares = dealt(tp, blocks)
    heads = (DRAFT.num_attention_heads + 2 * DRAFT.num_key_value_heads) // tp
    of_layer = 2 * DRAFT.num_key_value_heads // tp * DRAFT.head_dim
    rows = {
        "gate_up": 2 * DRAFT.intermediate_size // tp,
        "qkv": heads * DRAFT.head_dim,
        "context": DRAFT.num_hidden_layers * of_layer,
    }
    for name, count in rows.items():
        done = np.zeros((plan["slices"], count // _core.megakernel.TILE_ROWS), dtype=int)
        for share in shares:
            begin, end = share[name]["tiles"]
            done[share[name]["slice"], begin:end] += 1
        assert (done == 1).all(), name


@given(st.sampled_from([1, 2, 4]), st.integers(4, 132))
def test_every_unit_of_the_residual_stream_has_one_block(tp: int, blocks: int) -> None:
    plan, shares = dealt(tp, blocks)
    done = np.zeros(DRAFT.hidden_size // _core.megakernel.UNIT_ROWS, dtype=int)
    for block, share in enumerate(shares):
        begin, end = share["units"]
        done[begin:end] += 1
        assert (begin < end) == (block < plan["dense_blocks"])
    assert (done == 1).all()


@pytest.mark.parametrize("blocks", [66, 128, 132])
def test_the_slice_fills_the_gpu(blocks: int) -> None:
    shapes = shape_of(SLICE, 8, blocks, 8192, 62), draft_shape_of(draft_of(SLICE), 8)
    assert _core.megakernel.draft_unsupported(*shapes) is None
    plan = _core.megakernel.draft_plan(*shapes)
    # A power of two of the blocks, which divides 256 units evenly; as many parts of each head's keys as there
    # are blocks for. With 16 no warp has two runs of 32 of the keys that rows see, wherever they begin.
    assert plan["dense_blocks"] == {66: 64, 128: 128, 132: 128}[blocks]
    assert plan["splits"] == {66: 8, 128: 16, 132: 16}[blocks]
    assert blocks == 66 or plan["splits"] * 8 * 32 >= 2048 + 16 + 31
    assert (plan["feature_columns"], plan["feature_k"]) == (5120, 5120)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"layers": 9}, "1 to 8 layers"),
        ({"targets": []}, "1 to 8 layers of its target"),
        ({"intermediate": 40}, "a rank's features of the MLP"),
        ({"q_heads": 6}, "a rank's query heads"),
    ],
)
def test_a_draft_that_the_kernel_cannot_run_is_refused(changed: dict[str, object], said: str) -> None:
    shapes = shape_of(MINI, 2, 66, 512, 8), draft_shape_of(DRAFT, 2)
    assert _core.megakernel.draft_unsupported(*shapes) is None
    assert said in _core.megakernel.draft_unsupported(shapes[0], shapes[1] | changed)


# Trees


@given(st.data())
def test_rows_stand_as_the_tree_says(data: st.DataObject) -> None:
    parents = [-1, *(data.draw(st.integers(0, node - 1)) for node in range(1, 16))]
    tree = TokenTree(np.arange(16), np.array(parents))
    depths, sees = _core.megakernel.tree_rows([max(parent, 0) for parent in parents])
    assert depths == tree.depths.tolist()
    assert sees == [sum(1 << int(node) for node in np.flatnonzero(row)) for row in tree.ancestors]


# Launches and their jobs


def test_a_step_on_a_gpu_has_two_launches_more() -> None:
    plan, other = gpu_step_plan(MINI, DRAFT), step_plan(MINI, DRAFT)
    assert [one.number for one in plan] == list(range(len(other) + 2))
    kinds = [one.device_kind for one in plan]
    assert kinds[kinds.index("entry") - 1] == "embed"
    assert kinds[-2:] == ["accept", "keep_kv"]
    without = [one for one in plan if one.kind not in ("embed", "keep_kv")]
    assert [replace(one, number=0) for one in without] == [replace(one, number=0) for one in other]


def test_the_table_of_a_step_has_the_jobs_of_all_its_launches() -> None:
    made = step_table()
    parts = [JobTable.built_in(name) for name in ("muse_hopper", "muse_draft", "muse_step")]
    assert made.table.slots == sum(part.slots for part in parts)
    assert made.first_slots == (0, parts[0].slots, parts[0].slots + parts[1].slots)
    names = [job.name for job in made.table.jobs]
    assert len(set(names)) == len(names) == sum(len(part.jobs) for part in parts)
    assert names[: len(parts[0].jobs)] == [job.name for job in parts[0].jobs]
    for part, first_slot in zip(parts, made.first_slots, strict=True):
        for pair, (job, warp) in enumerate(zip(part.job_of_pair, part.warp_of_pair, strict=True)):
            at = first_slot // 2 + pair
            assert made.table.warp_of_pair[at] == warp
            if job >= 0:
                assert names[made.table.job_of_pair[at]].removeprefix("draft.") == part.jobs[job].name


def test_a_wait_of_a_draft_launch_is_named_by_the_draft() -> None:
    target = JobTable.built_in("muse_hopper")
    draft = JobTable.built_in("muse_draft")
    for site, job in ((0, target.jobs[0]), (len(target.jobs) + 3, draft.jobs[3])):
        named = table_of_report({"site": site}).job_name(site)
        assert named.removeprefix("draft.") == job.name
