"""csrc/megakernel/ops: attention, routing, tiles, experts, expert_send and stop 4 of unpooler, as actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.protocol.barriers import Waiting
from tests.protocol.dense_ops import outbox_use
from tests.protocol.geometry import GROUP_WARPS, TOKENS, WorkItem, native, runs
from tests.protocol.warp import (
    IDS,
    INPUT_WARPS,
    ITEM_COUNT,
    ITEMS,
    PAIRS,
    POOL,
    ROW_CELLS,
    ROW_SLOTS,
    SUMS,
    SUMS_CELLS,
    Warp,
)

PART_WORDS = native.PART_FLOATS


class Tile(NamedTuple):
    """64 rows of a work item."""

    second: bool
    item: WorkItem
    part: int

    @property
    def name(self) -> str:
        """For messages."""
        expert, pair = self.item.expert, self.item.pairs[0]
        return f"gemm{1 + self.second} tile {self.part} of expert {expert} from pair {pair}"


def tiles_of(w: Warp) -> Iterator[Tile]:
    """The block's tiles: those of GEMM 1, then those of GEMM 2, dealt in turn."""
    of_first, of_second = w.g.tiles
    w.read(ITEM_COUNT, 1, "list")
    first_total = len(w.items) * of_first
    for number in range(w.block, first_total + len(w.items) * of_second, w.g.blocks):
        second = number >= first_total
        item, index = divmod(number - first_total if second else number, of_second if second else of_first)
        w.read(ITEMS + item, 1, "list")
        yield Tile(second, w.items[item], index)


def read_pairs(w: Warp, tile: Tile) -> None:
    """Which pairs a tile's columns are."""
    w.read(PAIRS + tile.item.first, len(tile.item.pairs), "list")


def k_of(w: Warp, second: bool) -> int:
    """K of a GEMM."""
    return w.g.intermediate if second else w.g.moe_hidden


def stages_of(w: Warp, second: bool) -> tuple[int, int]:
    """Stages of a tile, and their bytes."""
    k = k_of(w, second)
    stages = k // native.stage_k(k)
    return (
        (4 * stages, native.bf16_stage_bytes(k))
        if w.launch.bf16_experts
        else (stages, native.nvfp4_stage_bytes(k))
    )


class Attention:
    """Attention of the block's items, and the merge of their splits."""

    @staticmethod
    def group(w: Warp) -> Waiting:
        splits, g = w.g.splits, w.group_warp
        tokens = (2 * g, 2 * g + 1)
        for item in range(w.block, w.g.q_heads * splits, w.g.blocks):
            head, split = divmod(item, splits)
            yield from w.meet()
            w.write(POOL + g * TOKENS * 17, TOKENS * 17, "attention parts")
            yield from w.meet()
            w.read_at(
                runs(tuple(POOL + (p * TOKENS + 2 * g) * 17 for p in range(GROUP_WARPS)), 34),
                "attention parts",
            )
            rows = [(head * TOKENS + token) * splits + split for token in tokens]
            w.send(runs(tuple(w.g.at["attention"] + row * PART_WORDS for row in rows), PART_WORDS))
        for row in range(g * w.g.blocks + w.block, w.g.q_heads * TOKENS, w.g.blocks * GROUP_WARPS):
            yield from w.receive_words(w.g.at["attention"] + row * splits * PART_WORDS, splits * PART_WORDS)
            head, token = divmod(row, TOKENS)
            chunks = [(head * 2 + chunk) * TOKENS + token for chunk in range(2)]
            w.send(runs(tuple(w.g.at["heads"] + chunk * 16 for chunk in chunks), 16))


class Routing:
    """Stop 2, and the list of work."""

    @staticmethod
    def group(w: Warp) -> Waiting:
        for item in range(w.block, TOKENS * w.g.norm_parts, w.g.blocks):
            yield from Routing.normalize_row(w, item % TOKENS, item // TOKENS)
        g = w.group_warp
        yield from w.receive_words(w.g.at["logits"] + 2 * g * w.g.experts, 2 * w.g.experts)
        w.write(IDS + 2 * g * w.g.top_k, 2 * w.g.top_k, "ids")
        yield from Routing.list_work(w)
        w.arrive(w.shared.routed, 0)

    @staticmethod
    def list_work(w: Warp) -> Waiting:
        """A thread for each expert, then for each pair. Words of 4 bytes; cells here."""
        g, count = w.group_warp, TOKENS * w.g.top_k
        expert = {pair: item.expert for item in w.items for pair in item.pairs}
        place = {pair: item.first + i for item in w.items for i, pair in enumerate(item.pairs)}
        mine = range(g * 32, min(g * 32 + 32, count))
        ids = runs(tuple(sorted({expert[pair] for pair in mine})), 1) if mine else None
        tokens = w.scratch()
        w.write(tokens + g * 32, 32, "no tokens")
        yield from w.meet()
        if ids is not None:
            w.read(IDS + g * 32, len(mine), "ids")
            w.update_at(tokens + ids, "no tokens", "tokens of experts")
        yield from w.meet()
        Routing.read_tokens(w, tokens)
        sums = w.scratch()
        w.write(sums + g, 1, "sums of warps")
        yield from w.meet()
        if g:
            w.read(sums, g, "sums of warps")
        w.write(sums + GROUP_WARPS + g * 32, 32, "first pairs")
        Routing.write_items(w)
        yield from w.meet()
        if ids is not None:
            w.read_at(sums + GROUP_WARPS + ids, "first pairs")
            w.read_at(tokens + ids, "tokens of experts")
            w.write_at(runs(tuple(PAIRS + place[pair] for pair in mine), 1), "list")

    @staticmethod
    def read_tokens(w: Warp, first: int) -> None:
        """Those of the warp's 32 experts, of which some have none."""
        chosen = {item.expert for item in w.items}
        for some, what in ((True, "tokens of experts"), (False, "no tokens")):
            own = range(w.group_warp * 32, w.group_warp * 32 + 32)
            mine = tuple(first + expert for expert in own if (expert in chosen) is some)
            if mine:
                w.read_at(runs(mine, 1), what)

    @staticmethod
    def write_items(w: Warp) -> None:
        """Items of the warp's experts; the last thread knows how many there are in all."""
        mine = [i for i, item in enumerate(w.items) if item.expert // 32 == w.group_warp]
        if mine:
            w.write(ITEMS + mine[0], len(mine), "list")
        if w.group_warp == GROUP_WARPS - 1:
            w.write(ITEM_COUNT, 1, "list")

    @staticmethod
    def normalize_row(w: Warp, token: int, part: int) -> Waiting:
        """The block's part of a token's row, for which it needs all of it."""
        loads = w.g.moe_hidden // 8
        row = token * w.g.moe_hidden // 2
        mine = [
            load
            for first in (0, 256)
            for load in range(first + w.group_warp * 32, first + w.group_warp * 32 + 32)
        ]
        mine = [load for load in mine if load < loads]
        if mine:
            yield from w.receive(runs(tuple(w.g.at["pooled"] + row + load * 4 for load in mine), 4))
        scratch = w.scratch()
        # 4 bytes a warp; a cell here.
        w.write(scratch + w.group_warp, 1, "squares")
        yield from w.meet()
        w.read(scratch, GROUP_WARPS, "squares")
        begin, end = native.block_share(loads, part, w.g.norm_parts)
        own = tuple(w.g.at["expert_x"] + row + load * 4 for load in mine if begin <= load < end)
        if own:
            w.send(runs(own, 4))


class Experts:
    """Both expert GEMMs."""

    @staticmethod
    def tiles(w: Warp) -> Waiting:
        """Waits for the list of work."""
        return w.wait(w.shared.routed, 0, 0)

    @staticmethod
    def load(w: Warp) -> Waiting:
        yield from Experts.tiles(w)
        for tile in tiles_of(w):
            stages, size_bytes = stages_of(w, tile.second)
            for stage in range(stages):
                yield from w.fill((tile.name, stage), size_bytes)

    @staticmethod
    def wait_pool_free(w: Warp) -> Waiting:
        """Until the router's outbox, which lies where the rows come, is sent."""
        if w.shares["pool"]["pairs"]:
            use = outbox_use(w, "router")
            yield from w.wait(w.shared.outbox_empty, use % 2, use)

    @staticmethod
    def input(w: Warp) -> Waiting:
        yield from Experts.tiles(w)
        yield from Experts.wait_pool_free(w)
        row = 0
        for number, tile in enumerate(tiles_of(w)):
            # The rows of the first tile of GEMM 1 are the group's.
            if number > 0 or tile.second:
                yield from Experts.load_rows(w, tile, row)
                w.mark_tile_full(number)
            row += len(tile.item.pairs)

    @staticmethod
    def load_rows(w: Warp, tile: Tile, row: int) -> Waiting:
        """Those of a tile's rows that are this warp's: every second of all."""
        for index, pair in enumerate(tile.item.pairs, row):
            if index % INPUT_WARPS == w.warp - 1:
                read_pairs(w, tile)
                yield from Experts.load_row(w, tile, pair, index)

    @staticmethod
    def load_first_rows(w: Warp, tile: Tile) -> Waiting:
        """Rows of the block's first tile, by the group, into the first slots: eight loads each."""
        yield from Experts.wait_pool_free(w)
        loads, threads = w.g.moe_hidden // 8, GROUP_WARPS * 32
        steps = 2 if loads > threads else 1
        mine = [t for t in range(w.group_warp * 32, w.group_warp * 32 + 32) if t < loads]
        cells = [step * threads + thread for step in range(steps) for thread in mine]
        for first in range(0, len(tile.item.pairs) if mine else 0, 8 // steps):
            read_pairs(w, tile)
            rows = list(enumerate(tile.item.pairs))[first : first + 8 // steps]
            starts = [w.g.at["expert_x"] + pair // w.g.top_k * w.g.moe_hidden // 2 for _, pair in rows]
            yield from w.receive(runs(tuple(start + cell * 4 for start in starts for cell in cells), 4))
            for row, pair in rows:
                where = runs(tuple(POOL + row * ROW_CELLS + cell for cell in cells), 1)
                w.write_at(where, ("expert_x", pair))
        yield from w.meet()
        if w.group_warp == 0:
            for _ in range(INPUT_WARPS):
                w.mark_tile_full(0)

    @staticmethod
    def load_row(w: Warp, tile: Tile, pair: int, row: int) -> Waiting:
        """A pair's row into the next slot, 4 KB at a time."""
        words = k_of(w, tile.second) // 2
        region, index = ("features", pair) if tile.second else ("expert_x", pair // w.g.top_k)
        slot = row % ROW_SLOTS
        yield from w.wait_row_empty(row)
        for at in range(0, words, 1024):
            part = min(1024, words - at)
            yield from w.receive_words(w.g.at[region] + index * words + at, part)
            w.write(POOL + slot * ROW_CELLS + at // 4, part // 4, (region, pair))

    @staticmethod
    def group(w: Warp) -> Waiting:
        yield from Experts.tiles(w)
        tiles = list(tiles_of(w))
        row = 0
        for number, tile in enumerate(tiles):
            if number == 0 and not tile.second:
                yield from Experts.load_first_rows(w, tile)
            yield from w.wait_tile_full(number)
            if number == 0 or tiles[number - 1].second is not tile.second:
                yield from w.wait_full()
                if Experts.reads_ahead(w, tile):
                    yield from Experts.take_stage(w, tile, 0)
            following = next((t for t in tiles[number + 1 : number + 2] if t.second is tile.second), None)
            yield from Experts.multiply_tile(w, tile, row, following)
            row += len(tile.item.pairs)
            yield from Experts.leave_sums(w, tile, number)
        yield from Experts.wait_sums_sent(w, len(tiles))

    @staticmethod
    def is_busy(w: Warp, tile: Tile) -> bool:
        """Whether a stage reaches as far as the warp's K group."""
        return w.group_warp % 4 * 128 < native.stage_k(k_of(w, tile.second))

    @staticmethod
    def reads_ahead(w: Warp, tile: Tile) -> bool:
        """Whether the warp reads a stage before it multiplies the one in front (StageReader)."""
        return Experts.is_busy(w, tile) and not w.launch.bf16_experts

    @staticmethod
    def take_stage(w: Warp, tile: Tile, stage: int) -> Waiting:
        """The ring's next stage, which is given back as soon as it is read."""
        yield from w.wait_full()
        w.read_stage((tile.name, stage))
        w.mark_empty()

    @staticmethod
    def multiply_tile(w: Warp, tile: Tile, row: int, following: Tile | None) -> Waiting:
        """The tile's stages against its rows, which are given back; the next tile may be read already."""
        region = "features" if tile.second else "expert_x"
        first = 1 if Experts.reads_ahead(w, tile) else 0
        for stage in range(first, stages_of(w, tile.second)[0]):
            yield from Experts.take_stage(w, tile, stage)
        if first and following is not None:
            yield from Experts.take_stage(w, following, 0)
        if Experts.is_busy(w, tile):
            for at, pair in enumerate(tile.item.pairs, row):
                w.read(POOL + at % ROW_SLOTS * ROW_CELLS, k_of(w, tile.second) // 8, (region, pair))
        for at in range(row, row + len(tile.item.pairs)):
            w.mark_row_empty(at)

    @staticmethod
    def leave_sums(w: Warp, tile: Tile, number: int) -> Waiting:
        """The tile's sums for the sender."""
        buffer, g = number % 2, w.group_warp
        yield from w.wait(w.shared.sums_empty[buffer], number // 2 % 2 ^ 1, number // 2 - 1)
        w.write(SUMS + buffer * SUMS_CELLS + (g % 4 * 4 + g // 4 * 2) * 32, 64, tile.name)
        w.arrive(w.shared.sums_full[buffer], number // 2)

    @staticmethod
    def wait_sums_sent(w: Warp, tiles: int) -> Waiting:
        """The sums' place is scratch again."""
        for buffer in range(2):
            uses = (tiles + 1 - buffer) // 2
            if uses:
                yield from w.wait(w.shared.sums_empty[buffer], (uses - 1) % 2, uses - 1)

    @staticmethod
    def send(w: Warp) -> Waiting:
        yield from Experts.tiles(w)
        for number, tile in enumerate(tiles_of(w)):
            buffer = number % 2
            yield from w.wait(w.shared.sums_full[buffer], number // 2 % 2, number // 2)
            read_pairs(w, tile)
            w.read(SUMS + buffer * SUMS_CELLS, SUMS_CELLS, tile.name)
            w.give_sums_back(number)
            if tile.second:
                Experts.send_outputs(w, tile)
            else:
                Experts.send_features(w, tile)

    @staticmethod
    def send_features(w: Warp, tile: Tile) -> None:
        """A chunk of each pair's row, to all ranks."""
        for rank, place in w.g.peers(w.rank):
            first = w.g.at["features"] + (place * w.g.features + tile.part * native.TILE_FEATURES) // 2
            w.send(runs(tuple(first + pair * w.g.intermediate // 2 for pair in tile.item.pairs), 16), rank)

    @staticmethod
    def send_outputs(w: Warp, tile: Tile) -> None:
        """Two chunks of each pair's row: to all ranks, or to the own one, and the sums of squares to all."""
        g, pairs = w.g, tile.item.pairs
        columns = g.moe_hidden if g.gather else g.pooled_rows
        if not g.gather:
            for rank, place in g.peers(w.rank):
                at = [(place * TOKENS * g.top_k + pair) * g.tiles[1] + tile.part for pair in pairs]
                w.send(runs(tuple(g.at["squares"] + word for word in at), 1), rank)
        for rank, place in g.peers(w.rank) if g.gather else [(w.rank, 0)]:
            first = g.at["outputs"] + (place * g.pooled_rows + tile.part * 64) // 2
            w.send(runs(tuple(first + pair * columns // 2 for pair in pairs), 32), rank)


class Combine:
    """Stop 4: norm and weighted sum of each token's pairs."""

    @staticmethod
    def group(w: Warp) -> Waiting:
        for item in range(w.block, TOKENS * w.g.pooled_rows // 64, w.g.blocks):
            yield from Combine.part(w, item % TOKENS, item // TOKENS)

    @staticmethod
    def part(w: Warp, token: int, part: int) -> Waiting:
        """A token's 64 columns; a warp for each of its experts."""
        scratch = w.scratch()
        pair = token * w.g.top_k + w.group_warp
        if w.group_warp < w.g.top_k:
            yield from Combine.receive(w, pair, part)
            w.read(IDS + pair, 1, "ids")
            w.write(scratch + w.group_warp * 16, 16, "outputs of a token")
        yield from w.meet()
        if w.group_warp != 0:
            return
        w.read(scratch, w.g.top_k * 16, "outputs of a token")
        chunks = [(part * 2 + chunk) * TOKENS + token for chunk in range(2)]
        w.send(runs(tuple(w.g.at["combined"] + chunk * 16 for chunk in chunks), 16))

    @staticmethod
    def receive(w: Warp, pair: int, part: int) -> Waiting:
        """A pair's own columns, and what the norm over its whole row needs."""
        g = w.g
        columns = g.moe_hidden if g.gather else g.pooled_rows
        row = g.at["outputs"] + pair * columns // 2
        own = (g.own_place(w.rank) * g.pooled_rows if g.gather else 0) + part * 64
        yield from w.receive_words(row + own // 2, 32)
        if g.gather:
            for at in range(0, columns // 2, 512):
                yield from w.receive_words(row + at, min(512, columns // 2 - at))
            return
        starts = [(place * TOKENS * g.top_k + pair) * g.tiles[1] for place in range(g.places)]
        yield from w.receive(runs(tuple(g.at["squares"] + start for start in starts), g.tiles[1]))
