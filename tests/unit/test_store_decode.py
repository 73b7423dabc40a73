"""Stamps to spans, against plain Python that takes one slot at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musetrace.job_table import JobTable
from musetrace.store.decode import Flag, PairMap, decode_launch
from musetrace.store.payloads import Clock, Launch
from musetrace.store.stamp_batch import StampBatch
from tests import slow_reader
from tests.builders import small_table

T0 = 7_000_000_000_000
EPOCH = 5


def times(slot_bytes: int) -> st.SearchStrategy[int]:
    """Slots: unwritten, plausible, at the edges of a wrap, or nonsense."""
    near = st.integers(T0 - 2 * 2**20, T0 + 3 * 10**9)
    wrap = st.integers(-5, 5).map(lambda d: (T0 // 2**32 + 1) * 2**32 + d)
    nonsense = st.one_of(st.integers(1, 100), st.integers(2**64 - 100, 2**64 - 1), st.integers(1, 2**64 - 1))
    full = st.one_of(st.just(0), near, near, wrap, nonsense)
    return full if slot_bytes == 8 else full.map(lambda value: value % 2**32)


@st.composite
def batches(draw: st.DrawFn) -> tuple[StampBatch, JobTable | None, Clock | None]:
    slot_bytes = draw(st.sampled_from([4, 8]))
    blocks = draw(st.integers(0, 4))
    slots = draw(st.sampled_from([2, 6, 16]))
    headers = st.one_of(
        st.integers(T0 - 1000, T0 + 1000), st.just((T0 // 2**32 + 1) * 2**32 - 1), st.integers(0, 2**64 - 1)
    )
    submit = draw(st.sampled_from([0, T0 - 5000, T0 + 3]))
    launch = Launch(
        draw(st.integers(0, 3)), draw(st.integers(0, 9)), -1, "entry", EPOCH, submit, T0 + 2 * 10**9
    )
    batch = StampBatch(
        launch=launch,
        block=np.array(draw(st.permutations(range(blocks))), dtype=np.uint16),
        epoch=np.array(
            [draw(st.sampled_from([EPOCH, EPOCH, EPOCH, 0, 4])) for _ in range(blocks)], dtype=np.uint32
        ),
        sm=np.array(
            [draw(st.sampled_from([0, 131, 65535, 65536, 70_000, 2**32 - 1])) for _ in range(blocks)],
            dtype=np.uint32,
        ),
        overflow=np.array([draw(st.integers(0, 9)) for _ in range(blocks)], dtype=np.uint32),
        time_ns=np.array([draw(headers) for _ in range(blocks)], dtype=np.uint64),
        slots=np.array(
            [[draw(times(slot_bytes)) for _ in range(slots)] for _ in range(blocks)], dtype=f"u{slot_bytes}"
        ).reshape(blocks, slots),
    )
    table = draw(st.sampled_from([None, small_table(6), small_table(16)]))
    anchor = draw(st.sampled_from([None, Clock(T0 - 10**10, T0 - 10**10, 1), Clock(T0, T0 - 700, 1)]))
    return batch, table, anchor


def slow_rows(batch: StampBatch, table: JobTable | None, anchor: Clock | None) -> Any:
    blocks = [
        slow_reader.Block(
            int(batch.block[row]),
            int(batch.epoch[row]),
            int(batch.sm[row]),
            int(batch.overflow[row]),
            int(batch.time_ns[row]),
            [int(slot) for slot in batch.slots[row]],
        )
        for row in range(len(batch.block))
    ]
    return slow_reader.launch_rows(
        vars(batch.launch),
        batch.slots.dtype.itemsize,
        blocks,
        table.to_json() if table else None,
        vars(anchor) if anchor else None,
    )


@given(batches())
def test_spans_equal_those_of_the_slow_reader(case: tuple[StampBatch, JobTable | None, Clock | None]) -> None:
    batch, table, anchor = case
    decoded = decode_launch(batch, PairMap(table, batch.slots.shape[1] // 2), anchor)
    expected, believed = slow_rows(batch, table, anchor)
    spans = decoded.spans
    assert [int(value) for value in spans.begin] == [row["begin"] for row in expected]
    for name in ("dur", "job", "block", "sm", "warp", "flag"):
        assert getattr(spans, name).tolist() == [row[name] for row in expected], name
    assert decoded.begin_ns == (min(believed) if believed else 0)
    assert decoded.end_ns == (max(believed) if believed else 0)


@given(batches())
def test_no_stamp_is_dropped_and_blocks_are_counted(
    case: tuple[StampBatch, JobTable | None, Clock | None],
) -> None:
    batch, table, anchor = case
    decoded = decode_launch(batch, PairMap(table, batch.slots.shape[1] // 2), anchor)
    pairs = sum(1 for row in batch.slots for pair in row.reshape(-1, 2) if pair.any())
    assert len(decoded.spans) == pairs
    fresh = [int(epoch) == EPOCH for epoch in batch.epoch]
    assert decoded.blocks == sum(fresh)
    stale = [not f and (e != 0 or s.any()) for f, e, s in zip(fresh, batch.epoch, batch.slots, strict=True)]
    assert decoded.stale_blocks == sum(stale)
    assert decoded.overflow == sum(int(o) for o, f in zip(batch.overflow, fresh, strict=True) if f)


@pytest.mark.parametrize(
    ("begin", "end", "flag", "dur"),
    [
        (T0, T0 + 9, Flag.OK, 9),
        (T0, T0, Flag.OK, 0),
        (T0, 0, Flag.NO_END, 0),
        (0, T0, Flag.NO_BEGIN, 0),
        (T0 + 9, T0, Flag.REVERSED, 0),
        (T0, 2**64 - 1, Flag.OUTSIDE, 0),
        (1, T0, Flag.OUTSIDE, 0),
        (1, 0, Flag.OUTSIDE, 0),
    ],
)
def test_each_oddity_has_its_flag(begin: int, end: int, flag: Flag, dur: int) -> None:
    decoded = decode_launch(one_pair(begin, end), PairMap(small_table(2), 1), Clock(T0, T0, 0))
    assert decoded.spans.flag.tolist() == [flag]
    assert decoded.spans.dur.tolist() == [dur]


@pytest.mark.parametrize(("offset", "flag"), [(-(10**9), 0), (-(10**9) - 1, 5), (2**32 + 10**9, 0)])
def test_a_time_counts_as_outside_from_one_second_on(offset: int, flag: int) -> None:
    # The launch was submitted at T0 and done 2^32 ns later, when the clocks were compared.
    anchor = Clock(T0 + 2**32, T0 + 2**32, 0)
    decoded = decode_launch(one_pair(T0 + offset, 0), PairMap(small_table(2), 1), anchor)
    assert decoded.spans.flag.tolist() == [flag or Flag.NO_END]
    later = decode_launch(one_pair(T0 + 2**32 + 10**9 + 1, 0), PairMap(small_table(2), 1), anchor)
    assert later.spans.flag.tolist() == [Flag.OUTSIDE]


def test_a_header_of_another_launch_makes_all_its_slots_stale() -> None:
    batch = one_pair(T0, T0 + 5, epoch=EPOCH - 1)
    decoded = decode_launch(batch, PairMap(small_table(2), 1), Clock(T0, T0, 0))
    assert decoded.spans.flag.tolist() == [Flag.STALE]
    assert (decoded.blocks, decoded.stale_blocks, decoded.begin_ns, decoded.end_ns) == (0, 1, 0, 0)


def test_a_4_byte_stamp_before_its_header_and_one_behind_the_wrap_are_exact() -> None:
    header = (T0 // 2**32 + 1) * 2**32 - 10
    begin, end = header - 50, header + 1000
    batch = one_pair(begin % 2**32, end % 2**32, header=header, slot_bytes=4)
    spans = decode_launch(batch, PairMap(small_table(2), 1), Clock(T0, T0, 0)).spans
    assert (int(spans.begin[0]), int(spans.dur[0]), int(spans.flag[0])) == (begin, 1050, 0)


@pytest.mark.parametrize("early_ms", [0.5, 1.2, 300, 900])
def test_a_4_byte_stamp_long_before_its_header_is_exact_as_far_back_as_the_launch_was_handed_over(
    early_ms: float,
) -> None:
    """A block that is resident while the launch in front still runs writes its header at that one's end."""
    header = T0 + 1_000_000_000
    begin, end = header - int(early_ms * 1e6), header + 1000
    batch = one_pair(begin % 2**32, end % 2**32, header=header, slot_bytes=4)
    batch = replace(batch, launch=replace(batch.launch, done_ns=T0 + 2_000_000_000))
    decoded = decode_launch(batch, PairMap(small_table(2), 1), Clock(T0, T0, 0))
    spans = decoded.spans
    assert (int(spans.begin[0]), int(spans.dur[0]), int(spans.flag[0])) == (begin, end - begin, 0)
    assert (decoded.begin_ns, decoded.end_ns) == (begin, end)


@pytest.mark.parametrize("anchor", [None, Clock(T0, T0, 0)])
def test_a_4_byte_stamp_before_the_launch_was_handed_over_is_no_time_of_it(anchor: Clock | None) -> None:
    header = T0 + 10_000_000
    # Of a launch that took a second; the window of all its times ends two seconds on.
    batch = one_pair((T0 - 5_000_000) % 2**32, (header + 10) % 2**32, header=header, slot_bytes=4)
    batch = replace(batch, launch=replace(batch.launch, done_ns=T0 + 1_000_000_000))
    spans = decode_launch(batch, PairMap(small_table(2), 1), anchor).spans
    assert int(spans.begin[0]) == T0 - 5_000_000 + 2**32
    assert int(spans.flag[0]) == (Flag.OUTSIDE if anchor else Flag.REVERSED)


def one_pair(
    begin: int, end: int, *, header: int = T0, epoch: int = EPOCH, slot_bytes: int = 8
) -> StampBatch:
    return StampBatch(
        launch=Launch(0, 0, 0, "sliding", EPOCH, T0, T0 + 2**32),
        block=np.array([0], dtype=np.uint16),
        epoch=np.array([epoch], dtype=np.uint32),
        sm=np.array([0], dtype=np.uint32),
        overflow=np.array([0], dtype=np.uint32),
        time_ns=np.array([header], dtype=np.uint64),
        slots=np.array([[begin, end]], dtype=f"u{slot_bytes}"),
    )
