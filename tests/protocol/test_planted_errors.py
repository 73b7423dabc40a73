"""The simulation of the protocol finds errors: each of these is planted, and must be named."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from tests.protocol import expert_ops
from tests.protocol.barriers import Waiting
from tests.protocol.clocks import ProtocolError
from tests.protocol.dense_ops import POOLER, STOP_1, STOP_5, UNPOOLER, AllReduce, Pooler, outbox_use
from tests.protocol.expert_ops import Experts, Tile
from tests.protocol.geometry import SENDER, Geometry, Launch, mini
from tests.protocol.layer import Layer, Op
from tests.protocol.test_protocol import SAME, SINGLE, single_rows, spread, wide
from tests.protocol.warp import SUMS, SUMS_CELLS, Block, Warp
from tests.protocol.world import World

LAYERS = [Launch(spread(7)), Launch(SAME)]


def fails(what: str, layer: Layer | None = None, ranks: int = 2, **options: Any) -> None:
    """Runs two layers with a planted error, which must be found."""
    with pytest.raises(ProtocolError, match=what):
        World(Geometry(mini(ranks, 4), "sumsq"), layer or Layer(), **options).run(LAYERS)


def nothing(*_: object) -> Waiting:
    yield from ()


def exchanged(ops: tuple[Op, ...], old: Op, new: Op) -> tuple[Op, ...]:
    """The ops with one in the place of another."""
    assert old in ops
    return tuple(new if op == old else op for op in ops)


def test_without_an_error_nothing_is_found() -> None:
    World(Geometry(mini(2, 4), "sumsq"), Layer()).run(LAYERS)


def test_a_lost_send_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    send = AllReduce.send_units

    def lost(stop: AllReduce, w: Warp) -> None:
        if (stop, w.rank, w.block) != (STOP_1, 1, 2):
            send(stop, w)

    monkeypatch.setattr(AllReduce, "send_units", lost)
    fails(r"deadlock: (.|\n)*slots of partial1")


@pytest.mark.parametrize("warp", [1, 2, SENDER])
def test_one_of_the_sending_warps_sends_nothing(warp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    send = AllReduce.send_units
    monkeypatch.setattr(AllReduce, "send_units", lambda stop, w: None if w.warp == warp else send(stop, w))
    fails(r"deadlock: (.|\n)*slots of partial1")


def test_a_send_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    send = Experts.send_features
    monkeypatch.setattr(Experts, "send_features", lambda w, tile: [send(w, tile), send(w, tile)])
    fails("sends to a slot that is full")


def test_ops_of_the_ring_in_another_order() -> None:
    first, second, *rest = Layer().loader
    fails(r"reads \('o_proj'.* where \('pooler'", Layer(loader=(second, first, *rest)))


def test_router_rows_loaded_before_the_pooler() -> None:
    o_proj, pooler, router, *rest = Layer().loader
    fails("where .*router", Layer(loader=(o_proj, router, pooler, *rest)))


@pytest.mark.parametrize(
    ("stages", "what"), [(0, "deadlock|reads .* where"), (2, "left at the launch's end|where")]
)
def test_a_stage_too_few_or_too_many(stages: int, what: str) -> None:
    class Miscounted(Warp):
        def fill(self, what: Hashable, size_bytes: int) -> Waiting:
            last = (self.g.qkv_units * 64 // 16) - 1
            for _ in range(stages if what == ("qkv", last, 0) else 1):
                yield from super().fill(what, size_bytes)

    fails(what, warp=Miscounted)


def test_a_stage_freed_by_one_warp_under_the_slower_ones() -> None:
    class FirstFrees(Warp):
        def mark_empty(self) -> None:
            if self.group_warp == 0:
                for _ in range(8):
                    self.arrive(self.shared.empty[self.cursor.stage], self.cursor.phase)
            self.cursor.advance()

    fails("may still read|before .* has seen the end", warp=FirstFrees)


@pytest.mark.parametrize("op", [POOLER.multiply, Experts.group, UNPOOLER.multiply])
def test_a_cursor_that_restarts_at_an_op(op: Op) -> None:
    def restarted(w: Warp) -> Waiting:
        w.cursor.stage = w.cursor.parity = 0
        yield from op(w)

    fails(
        r"by its parity|without knowing|arrives for|deadlock|where|not in order|has seen the end",
        Layer(group=exchanged(Layer().group, op, restarted)),
    )


def test_rows_freed_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(w: Warp, tile: Tile, row: int, following: Tile | None) -> Waiting:
        for at in range(row, row + len(tile.item.pairs)):
            mark(w, at)
        yield from multiply(w, tile, row, following)

    multiply, mark = Experts.multiply_tile, Warp.mark_row_empty
    monkeypatch.setattr(Experts, "multiply_tile", early)
    monkeypatch.setattr(Warp, "mark_row_empty", lambda w, row: None)
    fails("writes .* while .*group warp . may still read")


def test_rows_of_one_tile_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(w: Warp) -> list[Tile]:
        found = list(tiles(w))
        return found[1::-1] + found[2:] if w.warp in (1, 2) else found

    tiles = expert_ops.tiles_of
    monkeypatch.setattr(expert_ops, "tiles_of", turned)
    fails("reads .* where|deadlock")


def test_too_few_barriers_for_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input warp can be eight tiles of a row ahead of the other, and one more in which it has none."""
    monkeypatch.setattr(Block, "TILE_BARRIERS", 8)
    with pytest.raises(ProtocolError, match=r"tile_full\[.\]: .* input . .*arrives for phase"):
        World(single_rows(), Layer()).run([SINGLE])


def test_an_input_warp_that_arrives_only_for_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    load_rows = Experts.load_rows

    class Sparing(Warp):
        has_rows = True

        def mark_tile_full(self, number: int) -> None:
            if self.has_rows:
                super().mark_tile_full(number)

    def noted(w: Sparing, tile: Tile, row: int) -> Waiting:
        w.has_rows = any((row + i) % 2 == w.warp - 1 for i in range(len(tile.item.pairs)))
        return load_rows(w, tile, row)

    monkeypatch.setattr(Experts, "load_rows", noted)
    with pytest.raises(ProtocolError, match="tile_full|deadlock"):
        World(single_rows(), Layer(), warp=Sparing).run([SINGLE])


def test_sums_used_as_scratch_before_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Experts, "wait_sums_sent", nothing)
    fails("writes outputs of a token.* gemm2")


def test_sums_given_back_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(w: Warp) -> Waiting:
        yield from Experts.tiles(w)
        for number, tile in enumerate(expert_ops.tiles_of(w)):
            buffer = number % 2
            yield from w.wait(w.shared.sums_full[buffer], number // 2 % 2, number // 2)
            w.give_sums_back(number)
            w.read(SUMS + buffer * SUMS_CELLS, SUMS_CELLS, tile.name)
            (Experts.send_outputs if tile.second else Experts.send_features)(w, tile)

    fails("may still read gemm", Layer(sender=exchanged(Layer().sender, Experts.send, early)))


def test_the_outbox_overwritten_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Warp, "wait_outbox_empty", nothing)
    fails("writes outbox of .* while .* may still read outbox|has seen the end|without knowing")


def test_the_outbox_given_back_once_more_than_it_is_waited_for() -> None:
    """An input warp without rows may be late: it would wait for a phase whose parity has come round."""

    def again(w: Warp) -> Waiting:
        yield from STOP_5.send(w)
        if w.shares["units"][0] < w.shares["units"][1]:
            for _ in range(3):
                w.mark_outbox_empty(outbox_use(w, "unpooler"))

    layer = Layer(sender=exchanged(Layer().sender, STOP_5.send, again))
    with pytest.raises(ProtocolError, match="outbox_empty: phase 2 may end.* before .* input . has seen"):
        World(Geometry(mini(2, 33), "sumsq"), layer).run(LAYERS)


def test_the_outbox_given_back_by_the_first_of_its_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Block, "OUTBOX_EMPTY_ARRIVALS", 1)
    fails("outbox_empty: .* (arrives|has seen)|may still read outbox")


# Not warp 1: with this routing, rows that come over its part of the outbox follow from what it sends.
@pytest.mark.parametrize("warp", [2, SENDER])
def test_the_outbox_given_back_before_one_warp_has_sent(warp: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mark, send = Warp.mark_outbox_empty, Pooler.send_pairs

    def early(w: Warp) -> None:
        mark(w, outbox_use(w, "router"))
        send(w)

    monkeypatch.setattr(Pooler, "send_pairs", lambda w: early(w) if w.warp == warp else send(w))
    monkeypatch.setattr(
        Warp,
        "mark_outbox_empty",
        lambda w, use: None if w.warp == warp and use == outbox_use(w, "router") else mark(w, use),
    )
    with pytest.raises(ProtocolError, match="outbox of router"):
        World(wide(8, moe_hidden=4096), Layer()).run([Launch(spread(2, 64, 8))])


def test_rows_loaded_over_the_routers_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Experts, "wait_pool_free", nothing)
    # Parts of the outbox without router rows, for with these the list of work says that they are sent; and
    # rows that are long enough to reach it.
    with pytest.raises(ProtocolError, match="outbox of router"):
        World(wide(8, moe_hidden=4096), Layer()).run([Launch(spread(2, 64, 8))])


# (op, how many-th of its meetings, what it keeps apart)
MEETS = [
    ("Attention.group", 1, "attention parts"),  # parts of the eight warps before they are merged
    ("product of o_proj", 0, "x of o_proj"),  # attention's parts before x comes over them
    ("product of o_proj", 1, "x of o_proj"),  # x before it is multiplied
    ("product of o_proj", 2, "parts of o_proj"),  # the parts of a unit before they are added
    ("product of o_proj", 3, "parts of o_proj"),
    ("stop 1", 0, "sums1"),
    ("product of pooler", 0, "x of pooler"),
    ("Pooler.group", 0, "parts of router"),
    ("Routing.group", 0, "squares"),
    ("Routing.group", 4, "ids"),  # all choices, and the tokens of experts cleared, before they are marked
    ("Routing.group", 5, "tokens of experts"),  # and marked before they are counted
    ("Routing.group", 6, "sums of warps"),
    ("Routing.group", 7, "first pairs"),
    ("Experts.group", 0, "expert_x"),  # rows of the first tile
    ("Combine.group", 0, "outputs of a token"),
    ("product of unpooler", 0, "x of unpooler"),
    ("product of qkv", 0, "x of qkv"),
]


@pytest.mark.parametrize(("site", "number", "what"), MEETS)
def test_a_missing_meeting(site: str, number: int, what: str) -> None:
    class Hasty(Warp):
        passed = 0

        def meet(self) -> Waiting:
            if (self.rank, self.block, self.agent.site) == (0, 1, site):
                self.passed += 1
                if self.passed == number + 1:
                    return
            yield from super().meet()

    if site != "Experts.group":
        fails(what, warp=Hasty)
        return
    # The others' rows of tokens are short: all of a row is one warp's.
    with pytest.raises(ProtocolError, match=what):
        World(wide(8), Layer(), warp=Hasty).run([Launch(spread(2, 64, 8))])


def test_scratch_without_the_turns() -> None:
    class OneBuffer(Warp):
        def scratch(self) -> int:
            return SUMS

    fails("parts of o_proj", warp=OneBuffer)


def test_scratch_turns_that_start_again_at_an_op() -> None:
    class Restarted(Warp):
        last = ""

        def scratch(self) -> int:
            if self.agent.site != self.last:
                self.last, self.scratch_turn = self.agent.site, 0
            return super().scratch()

    fails("writes .* while .*group warp . may still read", warp=Restarted)


def test_the_group_does_not_wait_for_its_own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Experts.tiles
    monkeypatch.setattr(Experts, "tiles", lambda w: nothing() if w.warp > SENDER else wait(w))
    fails("reads list, not in order|list of work|may still read")


def test_work_listed_before_all_tokens_have_chosen() -> None:
    class Early(Warp):
        def arrive(self, barrier: Any, phase: int) -> None:
            arrivals = 8 if barrier is self.shared.routed and self.group_warp == 0 else 1
            for _ in range(0 if barrier is self.shared.routed and self.group_warp else arrivals):
                super().arrive(barrier, phase)

    fails("list|reads", warp=Early)
