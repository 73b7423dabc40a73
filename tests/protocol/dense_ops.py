"""csrc/megakernel/ops/{dense,all_reduce,pooler,qkv}.cuh as actions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.protocol.barriers import Waiting
from tests.protocol.geometry import GROUP_WARPS, TOKENS, native, runs
from tests.protocol.warp import BRANCH, OUTBOX, POOL, SENDING_WARPS, Warp

UNIT_WORDS = 256  # 32 columns of 16 tokens, bf16
CHUNK_CELLS = 64
K_GROUPS = GROUP_WARPS // 2
ROWS_AT_ONCE = 4  # of the router


def receive_block(w: Warp, word: int, words: int, what: Hashable) -> Waiting:
    """Group: slots into the pool's x, as they are; the warp's parts of 512 bytes, eight at a time."""
    part = 128
    mine = range(w.group_warp * part, words, GROUP_WARPS * part)
    for first in range(0, len(mine), 8):
        starts = mine[first : first + 8]
        yield from w.receive(runs(tuple(word + at for at in starts), part))
        w.write_at(runs(tuple(POOL + at // 4 for at in starts), part // 4), what)


def multiply_unit(w: Warp, op: str, tiles: Sequence[int], stages: int, k_of_stage: int) -> Waiting:
    """Group: stages of up to two tiles. A warp has one of them, and every fourth chunk of its K."""
    chunks = k_of_stage // native.CHUNK_K
    own, k_group = divmod(w.group_warp, K_GROUPS)
    for index, tile in enumerate(tiles):
        for stage in range(stages):
            yield from w.wait_full()
            mine = tuple((stage * chunks + c) * CHUNK_CELLS for c in range(k_group, chunks, K_GROUPS))
            if mine and index == own:
                w.read_stage((op, tile, stage))
                w.read_at(runs(mine, CHUNK_CELLS), f"x of {op}")
            w.mark_empty()


def reduce_unit(w: Warp, op: str) -> Waiting:
    """Group: the sums of the K groups."""
    scratch = w.scratch()
    tile, k_group = divmod(w.group_warp, K_GROUPS)
    # Half a token's rows, in the half of its place that the exchange of bits makes it.
    halves = [token * 8 + (tile ^ token // 4 % 2) * 4 for token in range(TOKENS)]
    w.write_at(runs(tuple(scratch + k_group * 128 + half for half in halves), 4), f"parts of {op}")
    yield from w.meet()
    starts = tuple(scratch + part * 128 + w.group_warp * 16 for part in range(K_GROUPS))
    w.read_at(runs(starts, 16), f"parts of {op}")


def has_units(w: Warp) -> bool:
    """Whether the block owns columns of the residual stream."""
    begin, end = w.shares["units"]
    return bool(end > begin)


def outbox_use(w: Warp, op: str) -> int:
    """Which use of the outbox an op's is; blocks that have no part in an op leave theirs out."""
    units, pool = int(has_units(w)), int(w.shares["pool"]["pairs"] != 0)
    return {"o_proj": 0, "router": units, "unpooler": units + pool}[op]


@dataclass(frozen=True)
class Product:
    """A phase's dense product. ``x``: the region of its input; ``to``: where its sums go, or the outbox."""

    op: str
    x: str
    to: str | None

    def work(self, w: Warp) -> tuple[range, int, int, int]:
        """The block's tiles, K, its slice and how many slices there are."""
        first, end = w.shares["units"]
        if self.op == "pooler":
            return range(*w.shares["pool"]["tiles"]), w.g.hidden, w.shares["pool"]["slice"], w.g.pool_slices
        if self.op == "qkv":
            return range(*w.shares["qkv"]["tiles"]), w.g.hidden, w.shares["qkv"]["slice"], w.g.qkv_slices
        return range(2 * first, 2 * end), w.g.head_columns if self.op == "o_proj" else w.g.pooled_rows, 0, 1

    def load(self, w: Warp) -> Waiting:
        """Loader: tile by tile."""
        w.agent.site = f"load of {self.op}"
        tiles, k, _, slices = self.work(w)
        for tile in tiles:
            for stage in range(k // native.stage_k(k) // slices):
                yield from w.fill((self.op, tile, stage), native.bf16_stage_bytes(k))

    def multiply(self, w: Warp) -> Waiting:
        """Group: x, then two tiles at a time."""
        w.agent.site = f"product of {self.op}"
        tiles, k, slice_, slices = self.work(w)
        stage = native.stage_k(k)
        if not tiles and not (self.op == "pooler" and range(*w.shares["pool"]["router"])):
            return
        words = k // slices * TOKENS // 2
        if self.op == "o_proj":
            yield from w.meet()  # the pool holds the attention's parts
        yield from receive_block(w, w.g.at[self.x] + slice_ * words, words, f"x of {self.op}")
        yield from w.meet()
        if not tiles:
            return
        yield from w.wait_full()
        if self.to is None:
            yield from w.wait_outbox_empty(outbox_use(w, self.op))
        for first in range(0, len(tiles), 2):
            two = tiles[first : first + 2]
            yield from multiply_unit(w, self.op, two, k // stage // slices, stage)
            yield from reduce_unit(w, self.op)
            if self.to is None:
                w.write(OUTBOX + first // 2 * CHUNK_CELLS + w.group_warp * 8, 8, f"outbox of {self.op}")
            else:
                w.send(self.sums(w, two, slice_))
        if self.to is None:
            w.mark_outbox_full(outbox_use(w, self.op))

    def sums(self, w: Warp, tiles: Sequence[int], slice_: int) -> Any:
        """Slots of the warp's two tokens of some tiles' sums."""
        tokens = (2 * w.group_warp, 2 * w.group_warp + 1)
        if self.op == "pooler":
            blocks = [slice_ * (w.g.pooled_rows // 16) + tile for tile in tiles]
            starts = [(block * TOKENS + token) * 16 for block in blocks for token in tokens]
        else:
            rows = w.g.qkv_units * 64
            starts = [(slice_ * TOKENS + token) * rows + tile * 16 for tile in tiles for token in tokens]
        return runs(tuple(w.g.at[str(self.to)] + start for start in starts), 16)


O_PROJ = Product("o_proj", "heads", None)
POOLER = Product("pooler", "x1", "pool")
UNPOOLER = Product("unpooler", "combined", None)
QKV = Product("qkv", "x5", "qkv")


def send_zeros(w: Warp) -> None:
    """Sender, entry: in the place of the sums of stop 5, to all ranks."""
    begin, end = w.shares["units"]
    for rank, place in w.g.peers(w.rank):
        first = w.g.at["partial5"] + (place * w.g.hidden // 32 + begin) * UNIT_WORDS
        w.send_words(first, (end - begin) * UNIT_WORDS, rank)


def send_sums(w: Warp, region: str) -> None:
    """Group: the block's part of the sums, two tokens a warp."""
    w.send_words(w.g.at[region] + (w.block * TOKENS + 2 * w.group_warp) * 4, 8)


def receive_sums(w: Warp, region: str) -> Waiting:
    """Group: the sums of all blocks; two in every sixteen blocks a warp, then two tokens a warp."""
    g = w.group_warp
    blocks = [b for b in range(w.g.dense_blocks) if b % 16 in (2 * g, 2 * g + 1)]
    if blocks:
        yield from w.receive(runs(tuple(w.g.at[region] + b * TOKENS * 4 for b in blocks), TOKENS * 4))
    scratch = w.scratch()
    w.write(scratch + 2 * g * TOKENS, 2 * TOKENS, region)
    yield from w.meet()
    w.read_at(runs(tuple(scratch + i * TOKENS + 2 * g for i in range(16)), 2), region)


def branch_at(w: Warp, index: int) -> int:
    """First of the warp's 16 cells of a unit's branch."""
    return BRANCH + index * 128 + w.group_warp * 16


def finish_units(w: Warp, branch: str, region: str) -> None:
    """Group: the norm of own columns to all blocks."""
    for index, unit in enumerate(range(*w.shares["units"])):
        w.read(branch_at(w, index), 16, branch)
        w.send_words(w.g.at[region] + unit * UNIT_WORDS + w.group_warp * 32, 32)


@dataclass(frozen=True)
class AllReduce:
    """Stop 1 or 5; the entry of a step is stop 5 with a branch of zeros."""

    number: int
    op: str

    def send(self, w: Warp) -> Waiting:
        """Warps 1 to 3: the block's units of the outbox to all ranks."""
        w.agent.site = f"send of {self.op}"
        if not has_units(w):
            return
        yield from w.wait_outbox_full(outbox_use(w, self.op))
        self.send_units(w)
        # Nobody waits for the last use to be sent.
        if self.number == 1:
            w.mark_outbox_empty(outbox_use(w, self.op))

    def send_units(self, w: Warp) -> None:
        """The warp's runs of 512 bytes, one rank after the other."""
        begin, end = w.shares["units"]
        part = 32
        mine = tuple(range(w.sending_warp * part, (end - begin) * CHUNK_CELLS, SENDING_WARPS * part))
        if not mine:
            return
        for rank, place in w.g.peers(w.rank):
            w.read_at(runs(tuple(OUTBOX + cell for cell in mine), part), f"outbox of {self.op}")
            first = w.g.at[f"partial{self.number}"] + (place * w.g.hidden // 32 + begin) * UNIT_WORDS
            w.send(runs(tuple(first + 4 * cell for cell in mine), 4 * part), rank)

    def group(self, w: Warp) -> Waiting:
        """Group: the sum over the ranks, and the norm over the whole row."""
        w.agent.site = f"stop {self.number}"
        if not has_units(w):
            return
        yield from self.receive_branch(w)
        send_sums(w, f"sums{self.number}")
        yield from receive_sums(w, f"sums{self.number}")
        finish_units(w, f"branch {self.number}", f"x{self.number}")

    def receive_branch(self, w: Warp) -> Waiting:
        """Own columns from all ranks."""
        branch = f"branch {self.number}"
        for index, unit in enumerate(range(*w.shares["units"])):
            first = w.g.at[f"partial{self.number}"] + unit * UNIT_WORDS + w.group_warp * 32
            rank_words = w.g.hidden // 32 * UNIT_WORDS
            yield from w.receive(runs(tuple(first + rank * rank_words for rank in range(w.g.places)), 32))
            w.write(branch_at(w, index), 16, branch)


STOP_1 = AllReduce(1, "o_proj")
STOP_5 = AllReduce(5, "unpooler")


class Qkv:
    """Behind the next layer's projection."""

    @staticmethod
    def group(w: Warp) -> Waiting:
        rows = w.g.qkv_units * 64
        starts = [w.g.at["qkv"] + slice_ * TOKENS * rows for slice_ in range(w.g.qkv_slices)]
        warps = w.g.blocks * GROUP_WARPS
        for item in range(w.group_warp * w.g.blocks + w.block, w.g.qkv_units * TOKENS, warps):
            unit, token = divmod(item, TOKENS)
            yield from w.receive(runs(tuple(at + token * rows + unit * 64 for at in starts), 64))


class Pooler:
    """The router, and what comes behind both products."""

    @staticmethod
    def load_router(w: Warp) -> Waiting:
        """Loader: a stage for each row."""
        for row in range(*w.shares["pool"]["router"]):
            yield from w.fill(("router", row, 0), w.g.hidden // w.g.pool_slices * 4)

    @staticmethod
    def group(w: Warp) -> Waiting:
        if w.shares["pool"]["pairs"] == 0:
            return
        if range(*w.shares["pool"]["router"]):
            yield from Pooler.route(w, w.g.hidden // w.g.pool_slices)
        yield from Pooler.sum_slices(w)

    @staticmethod
    def route(w: Warp, k: int) -> Waiting:
        """Router rows, a stage each."""
        share = w.shares["pool"]
        rows = range(*share["router"])
        yield from w.wait_full()
        scratch = w.scratch()
        for first in range(0, len(rows), ROWS_AT_ONCE):
            yield from Pooler.route_rows(w, rows[first : first + ROWS_AT_ONCE], k)
            count = len(rows[first : first + ROWS_AT_ONCE])
            w.write(scratch + (w.group_warp * len(rows) + first) * 4, count * 4, "parts of router")
        yield from w.meet()
        first = w.g.at["router"] + (share["slice"] * w.g.router_rows + rows[0]) * TOKENS
        for at in range(w.group_warp * 32, len(rows) * TOKENS, 256):
            words = min(32, len(rows) * TOKENS - at)
            starts = tuple(scratch + part * len(rows) * 4 + at // 4 for part in range(GROUP_WARPS))
            w.read_at(runs(starts, words // 4), "parts of router")
            w.send_words(first + at, words)

    @staticmethod
    def route_rows(w: Warp, rows: Sequence[int], k: int) -> Waiting:
        """Some rows at once: all their stages, and then all given back."""
        cursor, stages = w.cursor.copy(), []
        for row in rows:
            yield from w.wait_full(cursor)
            stages.append((("router", row, 0), cursor.copy()))
            cursor.advance()
        chunks = tuple(c * CHUNK_CELLS for c in range(w.group_warp, k // native.CHUNK_K, GROUP_WARPS))
        if chunks:
            w.read_at(runs(chunks, CHUNK_CELLS), "x of pooler")
            for what, stage in stages:
                w.read_stage(what, stage)
        for _ in rows:
            w.mark_empty()

    @staticmethod
    def slice_words(w: Warp, pairs: Sequence[int]) -> NDArray[np.int64]:
        """Slots of all slices of some of the group's pairs."""
        share, words = w.shares["pool"], []
        pooled = len(range(*share["tiles"])) * 128
        for slice_ in range(w.g.pool_slices):
            for index in pairs:
                if index >= pooled:
                    row = slice_ * w.g.router_rows + share["router"][0] + (index - pooled) // 8
                    words.append(w.g.at["router"] + row * TOKENS + (index - pooled) % 8 * 2)
                else:
                    tile = slice_ * (w.g.pooled_rows // 16) + share["tiles"][0] + index // 128
                    words.append(w.g.at["pool"] + (tile * TOKENS + index % 128 // 8) * 16 + index % 8 * 2)
        return np.concatenate([np.array(words), np.array(words) + 1])

    @staticmethod
    def sum_slices(w: Warp) -> Waiting:
        """The block's part of the group's results, into the outbox."""
        begin, end = w.shares["pool"]["owned"]
        yield from w.wait_outbox_empty(outbox_use(w, "router"))
        for first in range(w.group_warp * 32, end - begin, 256):
            pairs = range(begin + first, min(begin + first + 32, end))
            yield from w.receive(Pooler.slice_words(w, pairs))
            w.write(OUTBOX + first // 2, (len(pairs) + 1) // 2, "outbox of router")
        w.mark_outbox_full(outbox_use(w, "router"))

    @staticmethod
    def send(w: Warp) -> Waiting:
        if w.shares["pool"]["pairs"] == 0:
            return
        yield from w.wait_outbox_full(outbox_use(w, "router"))
        Pooler.send_pairs(w)
        w.mark_outbox_empty(outbox_use(w, "router"))

    @staticmethod
    def send_pairs(w: Warp) -> None:
        """Warps 1 to 3: pairs and the ranks that they go to, dealt in runs of 32."""
        begin, end = w.shares["pool"]["owned"]
        peers = w.g.peers(w.rank)
        total = (end - begin) * len(peers)
        for first in range(w.sending_warp * 32, total, SENDING_WARPS * 32):
            run = range(first, min(first + 32, total))
            cell, end_cell = run[0] // len(peers) // 2, run[-1] // len(peers) // 2 + 1
            w.read(OUTBOX + cell, end_cell - cell, "outbox of router")
            for number, (rank, place) in enumerate(peers):
                pairs = [begin + i // len(peers) for i in run if i % len(peers) == number]
                if pairs:
                    w.send(Pooler.result_words(w, pairs, place), rank)

    @staticmethod
    def result_words(w: Warp, pairs: Sequence[int], place: int) -> NDArray[np.int64]:
        """Where the sums of pairs go in a rank's exchange."""
        share, words = w.shares["pool"], []
        pooled = len(range(*share["tiles"])) * 128
        for index in pairs:
            if index >= pooled:
                expert = place * w.g.router_rows + share["router"][0] + (index - pooled) // 8
                at = w.g.at["logits"] + (index - pooled) % 8 * 2 * w.g.experts + expert
                words += [at, at + w.g.experts]
            else:
                tile, token, pair = share["tiles"][0] + index // 128, index % 128 // 8, index % 8
                column = place * w.g.pooled_rows + tile * 16 + 2 * pair
                word = column // 32 * 16 + native.pair_place(column % 32 // 2)
                words.append(w.g.at["pooled"] + token * w.g.moe_hidden // 2 + word)
        return np.array(words)
