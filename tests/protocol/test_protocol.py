"""The layer kernel's protocol has no deadlock and no reuse error, in any order of ops that a launch has."""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.protocol.geometry import TOKENS, Geometry, Launch, make_shape, mini, native
from tests.protocol.layer import Layer
from tests.protocol.world import World

EXPERTS, TOP_K = 16, 4


def spread(seed: int, experts: int = EXPERTS, top_k: int = TOP_K) -> tuple[tuple[int, ...], ...]:
    """Experts at random."""
    chooser = random.Random(seed)
    return tuple(tuple(sorted(chooser.sample(range(experts), top_k))) for _ in range(TOKENS))


SAME = ((1, 3, 8, 15),) * TOKENS  # experts with more than eight tokens: two items each
DISTINCT = tuple(
    tuple(sorted((token * TOP_K + i) % EXPERTS for i in range(TOP_K))) for token in range(TOKENS)
)
TWO_SETS = ((0, 1, 2, 3),) * 9 + ((12, 13, 14, 15),) * 7

SINGLE = Launch(tuple(tuple(range(token * TOP_K, token * TOP_K + TOP_K)) for token in range(TOKENS)))

STEP = (
    Launch(entry=True),
    Launch(SAME, bf16_experts=True),
    Launch(spread(1)),
    Launch(TWO_SETS),
    Launch(DISTINCT, projects=False, bf16_experts=True),
)


def single_rows() -> Geometry:
    """So many experts that each of SINGLE's has one token."""
    sizes = {"hidden": 512, "q_heads": 8, "kv_heads": 4, "moe_hidden": 128, "intermediate": 128}
    return Geometry(make_shape(1, 8, experts=64, top_k=TOP_K, **sizes), "gather")


def wide(blocks: int, moe_hidden: int = 1024) -> Geometry:
    """A rank of eight in loopback, with slices of K and several stages of K."""
    sizes = {"hidden": 2048, "q_heads": 16, "kv_heads": 8, "intermediate": 512, "experts": 64, "top_k": 8}
    shape = make_shape(8, blocks, moe_hidden=moe_hidden, **sizes)
    return Geometry(shape, "sumsq" if blocks % 2 else "gather", loopback=True)


@pytest.mark.parametrize(
    ("ranks", "blocks", "stop4"),
    [(1, 4, "sumsq"), (1, 5, "gather"), (2, 8, "sumsq"), (4, 5, "gather")],
)
def test_a_step_of_virtual_ranks(ranks: int, blocks: int, stop4: str) -> None:
    World(Geometry(mini(ranks, blocks), stop4), Layer()).run(STEP)


def test_tiles_of_one_row_each() -> None:
    """No input warp may be ahead of the other by more tiles than there are barriers for them."""
    assert [len(item.pairs) for item in SINGLE.items()] == [1] * 64
    World(single_rows(), Layer()).run([SINGLE, SINGLE])


def test_blocks_that_own_one_unit_of_columns() -> None:
    """The warp that makes the idle copy empty sends none of the block's rows then; two others do."""
    geometry = Geometry(mini(2, 16), "sumsq")
    assert all(share["units"] == (block, block + 1) for block, share in enumerate(geometry.shares))
    World(geometry, Layer(), devices=[[0], [1]]).run([Launch(TWO_SETS), Launch(DISTINCT), Launch(SAME)])


@pytest.mark.parametrize(("ranks", "stop4"), [(1, "gather"), (2, "sumsq"), (4, "gather")])
def test_more_blocks_than_columns_to_own(ranks: int, stop4: str) -> None:
    World(Geometry(mini(ranks, 33), stop4), Layer()).run(STEP[:2])


@pytest.mark.parametrize(("blocks", "moe_hidden"), [(8, 4096), (13, 1024)])
def test_a_slice_that_is_its_own_peers(blocks: int, moe_hidden: int) -> None:
    same = ((1, 5, 9, 20, 31, 40, 41, 63),) * TOKENS
    World(wide(blocks, moe_hidden), Layer()).run([Launch(spread(2, 64, 8)), Launch(same)])


@pytest.mark.parametrize(
    ("ranks", "blocks", "stop4", "devices"),
    [
        (2, 5, "gather", [[0], [1]]),
        (4, 4, "sumsq", [[0], [1], [2], [3]]),
        (4, 4, "gather", [[0, 1], [2, 3]]),
    ],
)
def test_steps_of_several_devices_need_nothing_but_slots(
    ranks: int, blocks: int, stop4: str, devices: list[list[int]]
) -> None:
    """The hosts meet before the first launch only. Of three launches, so that an entry has either copy."""
    World(Geometry(mini(ranks, blocks), stop4), Layer(), devices=devices).run([*STEP[:3], *STEP[:2]])


def test_an_entry_behind_an_entry() -> None:
    World(Geometry(mini(2, 5), "sumsq"), Layer(), devices=[[0], [1]]).run([STEP[0]] * 4)


@pytest.mark.parametrize("seed", range(3))
def test_several_devices_in_any_order_of_their_warps(seed: int) -> None:
    World(Geometry(mini(2, 4), "sumsq"), Layer(), devices=[[0], [1]], seed=seed).run(STEP[:3])


def test_several_devices_with_blocks_that_send_nothing() -> None:
    """Blocks without columns and tiles: they make no part of the exchange empty either."""
    geometry = Geometry(mini(4, 33), "sumsq")
    assert geometry.shares[32]["units"] == (0, 0)
    launches = [Launch(SAME)] * 2
    assert len(launches[0].items()) * sum(geometry.tiles) <= 32
    World(geometry, Layer(), devices=[[0], [1], [2], [3]]).run([Launch(entry=True), *launches])


# Explaining a failure traces every line, which takes minutes here.
@settings(max_examples=5, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink))
@given(data=st.data())
def test_any_routing_and_block_count(data: st.DataObject) -> None:
    ranks = data.draw(st.sampled_from([1, 2, 4]))
    blocks = data.draw(st.integers(4, 9))
    experts = (
        st.lists(st.integers(0, EXPERTS - 1), min_size=TOP_K, max_size=TOP_K, unique=True)
        .map(sorted)
        .map(tuple)
    )
    routing = st.lists(experts, min_size=TOKENS, max_size=TOKENS).map(tuple)
    launches = [Launch(data.draw(routing), bf16_experts=data.draw(st.booleans())) for _ in range(2)]
    geometry = Geometry(mini(ranks, blocks), data.draw(st.sampled_from(["gather", "sumsq"])))
    World(geometry, Layer(), seed=data.draw(st.integers(0, 999))).run(launches)


def test_work_follows_from_the_routing() -> None:
    items = Launch(SAME).items()
    assert [item.expert for item in items] == [1, 1, 3, 3, 8, 8, 15, 15]
    assert items[0].pairs == tuple(range(0, 32, 4))
    assert items[1].pairs == tuple(range(32, 64, 4))
    assert [item.first for item in items] == list(range(0, 64, 8))
    assert [len(item.pairs) for item in Launch(TWO_SETS).items()] == [8, 1] * 4 + [7] * 4
    assert sorted(pair for item in Launch(spread(3)).items() for pair in item.pairs) == list(
        range(TOKENS * TOP_K)
    )


@pytest.mark.parametrize("q_heads", [1, 2, 8, 16])
def test_a_head_s_keys_are_split_by_a_power_of_two(q_heads: int) -> None:
    """Of the blocks that each head can have, eight at most: the kernel finds a run's warp by a mask."""
    sizes = {"hidden": 512, "moe_hidden": 256, "intermediate": 256, "experts": 16, "top_k": 4}
    for blocks in range(4, 133):
        shape = make_shape(1, blocks, q_heads=q_heads, kv_heads=1, **sizes)
        splits = native.plan(shape)["splits"]
        of_head = max(1, min(8, blocks // q_heads))
        assert splits in (1, 2, 4, 8)
        assert splits <= of_head < 2 * splits


def test_a_shape_that_the_kernel_does_not_run_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden must be a multiple of 512"):
        make_shape(
            1, 4, hidden=768, q_heads=8, kv_heads=4, moe_hidden=256, intermediate=256, experts=16, top_k=4
        )
    assert native.unsupported(mini(1, 4)) is None
