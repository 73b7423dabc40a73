"""What a warp does with rings, barriers and slots: csrc/megakernel/block.cuh and csrc/sync as actions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from typing import Any

from tests.protocol.barriers import Barrier, Meeting, Waiting
from tests.protocol.clocks import Agent, ProtocolError
from tests.protocol.geometry import BLOCK_WARPS, FIRST_GROUP_WARP, GROUP_WARPS, Geometry, Launch
from tests.protocol.memory import Memory, Where
from tests.protocol.slots import Slots

STAGES = 8
ROW_SLOTS = 8
INPUT_WARPS = 2
SENDING_WARPS = 3
MAX_PAIRS = 128

# Cells of 16 bytes, as the kernel lays its shared memory out. In the ring a cell is a stage, and behind it a
# variable or an element of an array.
ROW_CELLS = 516
POOL = 0
OUTBOX = 36 * 64
BRANCH = 44 * 64
SUMS = POOL + ROW_SLOTS * ROW_CELLS
SUMS_CELLS = 512
RING = SUMS + 2 * SUMS_CELLS
IDS = RING + STAGES  # and weights
ITEM_COUNT = IDS + MAX_PAIRS
ITEMS = ITEM_COUNT + 1
PAIRS = ITEMS + MAX_PAIRS
CELLS = PAIRS + MAX_PAIRS


class Block:
    """The shared memory of a block for one launch."""

    TILE_BARRIERS = 16
    OUTBOX_EMPTY_ARRIVALS = SENDING_WARPS

    def __init__(self, name: str, first_agent: int, wake: Any, name_of: Callable[[int], str]) -> None:
        def barrier(what: str, arrivals: int) -> Barrier:
            return Barrier(f"{name} {what}", arrivals, wake)

        self.memory = Memory(name, CELLS, first_agent, BLOCK_WARPS, name_of)
        self.group = Meeting(f"{name} group", GROUP_WARPS, wake)
        self.routed = barrier("routed", GROUP_WARPS)
        self.outbox_full = barrier("outbox_full", GROUP_WARPS)
        self.outbox_empty = barrier("outbox_empty", self.OUTBOX_EMPTY_ARRIVALS)
        self.tile_full = [barrier(f"tile_full[{i}]", INPUT_WARPS) for i in range(self.TILE_BARRIERS)]
        self.rows_empty = [barrier(f"rows_empty[{i}]", GROUP_WARPS) for i in range(ROW_SLOTS)]
        self.sums_full = [barrier(f"sums_full[{i}]", GROUP_WARPS) for i in range(2)]
        self.sums_empty = [barrier(f"sums_empty[{i}]", 1) for i in range(2)]
        self.full = [barrier(f"ring full[{i}]", 1) for i in range(STAGES)]
        self.empty = [barrier(f"ring empty[{i}]", GROUP_WARPS) for i in range(STAGES)]

    def check_end(self) -> None:
        """At the launch's end: nothing that was filled is left, and no barrier waits for more arrivals.

        Raises:
            ProtocolError: something is.
        """
        pairs = zip([*self.full, *self.sums_full], [*self.empty, *self.sums_empty], strict=True)
        for full, empty in pairs:
            if full.phase != empty.phase or full.begun or empty.begun:
                raise ProtocolError(f"left at the launch's end: {full}, {empty}")
        others = [self.routed, self.outbox_full, self.outbox_empty, *self.tile_full, *self.rows_empty]
        for barrier in others:
            if barrier.begun:
                raise ProtocolError(f"left at the launch's end: {barrier}")
        if self.group.begun:
            raise ProtocolError(f"left at the launch's end: {self.group}")


class RingCursor:
    """csrc/sync/ring_cursor.h, and the stages counted from the launch's begin: what the parity stands for."""

    def __init__(self) -> None:
        self.stage = 0
        self.parity = 0
        self.count = 0

    @property
    def phase(self) -> int:
        """The phase of the stage's barriers that is meant."""
        return self.count // STAGES

    def advance(self) -> None:
        """The next stage."""
        self.count += 1
        self.stage += 1
        if self.stage == STAGES:
            self.stage = 0
            self.parity ^= 1

    def copy(self) -> RingCursor:
        """One that goes on by itself."""
        return copy(self)


class Warp:
    """A warp in one launch. Methods that can wait are generators."""

    IN_FLIGHT_BYTES = 48 * 1024

    def __init__(
        self,
        agent: Agent,
        g: Geometry,
        launch: Launch,
        shared: Block,
        place: tuple[int, int, int],
        exchange: tuple[list[Slots], Slots],
        resets: tuple[int, int],
    ) -> None:
        self.agent = agent
        self.g = g
        self.launch = launch
        self.shared = shared
        self.rank, self.block, self.warp = place
        self.exchange, self.idle = exchange
        self.slots = self.exchange[self.rank]
        # The clock component that says which of its resets are visible, and the number of this launch's.
        self.reset_component, self.reset_number = resets
        self.shares = g.shares[self.block]
        self.items = launch.items()
        self.cursor = RingCursor()
        self.landing = RingCursor()
        self.in_flight: list[int] = []
        self.scratch_turn = 0

    @property
    def group_warp(self) -> int:
        """0 to 7, of a group warp."""
        return self.warp - FIRST_GROUP_WARP

    @property
    def sending_warp(self) -> int:
        """0 to 2, of the warps that send dense results."""
        return self.warp - 1

    # Shared memory.

    def write(self, cell: int, cells: int, what: Hashable) -> None:
        """Overwrites a run of cells."""
        self.write_at(slice(cell, cell + cells), what)

    def read(self, cell: int, cells: int, what: Hashable) -> None:
        """Reads a run of cells."""
        self.read_at(slice(cell, cell + cells), what)

    def write_at(self, where: Where, what: Hashable) -> None:
        """Overwrites cells."""
        self.shared.memory.write(self.agent, where, what)

    def read_at(self, where: Where, what: Hashable) -> None:
        """Reads cells."""
        self.shared.memory.read(self.agent, where, what)

    def update_at(self, where: Where, before: Hashable, what: Hashable) -> None:
        """Changes cells atomically."""
        self.shared.memory.update(self.agent, where, before, what)

    def wait(self, barrier: Barrier, parity: int, phase: int) -> Waiting:
        """Waits for the end of a phase, which the hardware knows by its parity only."""
        return barrier.wait(self.agent, parity, phase)

    def arrive(self, barrier: Barrier, phase: int) -> None:
        """One arrival of the warp, in the phase that it means."""
        barrier.arrive(self.agent, phase)

    def meet(self) -> Waiting:
        """All eight group warps meet."""
        return self.shared.group.meet(self.agent)

    def scratch(self) -> int:
        """Group: first cell of one of the two buffers in which the warps exchange values, by turns."""
        self.scratch_turn ^= 1
        return SUMS + self.scratch_turn * SUMS_CELLS

    # The weight ring.

    def fill(self, what: Hashable, size_bytes: int) -> Waiting:
        """Loader: the next stage, once it is empty."""
        stage = self.cursor.stage
        yield from self.wait(self.shared.empty[stage], self.cursor.parity ^ 1, self.cursor.phase - 1)
        while sum(self.in_flight) > self.IN_FLIGHT_BYTES or len(self.in_flight) == STAGES:
            yield from self.wait(
                self.shared.full[self.landing.stage], self.landing.parity, self.landing.phase
            )
            self.in_flight.pop(0)
            self.landing.advance()
        self.write(RING + stage, 1, what)
        self.arrive(self.shared.full[stage], self.cursor.phase)
        self.in_flight.append(size_bytes)
        self.cursor.advance()

    def wait_full(self, cursor: RingCursor | None = None) -> Waiting:
        """Consumers: until the next stage, or that of another cursor, has landed."""
        at = cursor or self.cursor
        return self.wait(self.shared.full[at.stage], at.parity, at.phase)

    def read_stage(self, what: Hashable, cursor: RingCursor | None = None) -> None:
        """Consumers: the stage's bytes."""
        self.read(RING + (cursor or self.cursor).stage, 1, what)

    def mark_empty(self) -> None:
        """Consumers: the stage has been read."""
        self.arrive(self.shared.empty[self.cursor.stage], self.cursor.phase)
        self.cursor.advance()

    # The outbox: what the group leaves for warps 1 to 3. Its uses are counted within a launch.

    def wait_outbox_empty(self, use: int) -> Waiting:
        """Until the use before has been sent."""
        if use != 0:
            yield from self.wait(self.shared.outbox_empty, (use - 1) % 2, use - 1)

    def mark_outbox_full(self, use: int) -> None:
        """The warp's part is there."""
        self.arrive(self.shared.outbox_full, use)

    def wait_outbox_full(self, use: int) -> Waiting:
        """Warps 1 to 3: until all parts are there."""
        return self.wait(self.shared.outbox_full, use % 2, use)

    def mark_outbox_empty(self, use: int) -> None:
        """Warps 1 to 3: the warp has read its part."""
        self.arrive(self.shared.outbox_empty, use)

    # Rows of tokens and sums of tiles, both counted within a launch.

    def mark_tile_full(self, number: int) -> None:
        """Input warps: the warp's rows of the tile are there."""
        turn, place = divmod(number, self.shared.TILE_BARRIERS)
        self.arrive(self.shared.tile_full[place], turn)

    def wait_tile_full(self, number: int) -> Waiting:
        """Group: until all rows of the tile are there."""
        turn, place = divmod(number, self.shared.TILE_BARRIERS)
        return self.wait(self.shared.tile_full[place], turn % 2, turn)

    def mark_row_empty(self, row: int) -> None:
        """Group: the warp has read the row."""
        self.arrive(self.shared.rows_empty[row % ROW_SLOTS], row // ROW_SLOTS)

    def wait_row_empty(self, row: int) -> Waiting:
        """Input warps: until the row's place is free."""
        turn, slot = divmod(row, ROW_SLOTS)
        return self.wait(self.shared.rows_empty[slot], turn % 2 ^ 1, turn - 1)

    def give_sums_back(self, number: int) -> None:
        """Sender: it has read the tile's sums."""
        self.arrive(self.shared.sums_empty[number % 2], number // 2)

    # The exchange.

    def send(self, where: Where, to: int | None = None) -> None:
        """Slots of a rank's exchange (the own by default)."""
        (self.slots if to is None else self.exchange[to]).send(self.agent, where)

    def receive(self, where: Where) -> Any:
        """Until slots of the own exchange are full."""
        return self.slots.receive(self.agent, where)

    def send_words(self, word: int, words: int, to: int | None = None) -> None:
        """A run of slots."""
        self.send(slice(word, word + words), to)

    def receive_words(self, word: int, words: int) -> Any:
        """A run of slots."""
        return self.receive(slice(word, word + words))

    def reset_idle(self) -> None:
        """Sender: the block's lines of the idle copy, made empty."""
        sender = self.rank * self.g.blocks + self.block
        self.idle.reset(self.agent, self.g.reset_lines(self.block), sender, self.reset_number)

    def fence(self) -> None:
        """Sender: its resets are visible before whatever it sends from here on."""
        self.agent.know_component(self.reset_component, self.reset_number)
