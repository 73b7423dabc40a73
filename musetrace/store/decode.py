"""From the stamps of one launch to spans. Nothing is dropped: an odd pair of stamps becomes a flagged row."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace import _core
from musetrace.job_table import JobTable
from musetrace.store import limits
from musetrace.store.payloads import Clock, Launch
from musetrace.store.stamp_batch import StampBatch

_MAX_U64 = (1 << 64) - 1
_WRAP_NS = 1 << 32
# A stamp may lie this far before its launch was handed a buffer or after it was seen done: device and host
# clock are matched by anchors, and this is far above their error and far below a wrong time.
_SLACK_NS = 1_000_000_000
# No stamp of a launch is earlier than its submission, but for what the matched clocks are apart.
_BEFORE_SUBMIT_NS = 1_000_000
# Clocks drift apart by less than 1/1024 of the time since the anchor.
_DRIFT_SHIFT = 10
# Without an anchor the only reference is the launch itself, which may be long.
_UNANCHORED_NS = 60_000_000_000

U64Array = npt.NDArray[np.uint64]


class Flag(IntEnum):
    """What is odd about a span; analysis ignores every span whose flag is not OK."""

    OK = 0
    NO_END = 1
    NO_BEGIN = 2
    REVERSED = 3
    STALE = 4
    OUTSIDE = 5


@dataclass(frozen=True)
class Spans:
    """Spans as arrays of one length: ``begin`` and ``dur`` u64 ns, ``job`` u16, ``block`` u16, ``sm`` u16,
    ``warp`` u8, ``flag`` u8, ``iteration`` u16, ``payload`` u32, ``has_payload`` u8. ``begin`` is on the
    device clock; ``dur`` is 0 for an instant, and where the flag is not OK; ``payload`` is 0 where none is.
    """

    begin: U64Array
    dur: U64Array
    job: npt.NDArray[np.uint16]
    block: npt.NDArray[np.uint16]
    sm: npt.NDArray[np.uint16]
    warp: npt.NDArray[np.uint8]
    flag: npt.NDArray[np.uint8]
    iteration: npt.NDArray[np.uint16]
    payload: npt.NDArray[np.uint32]
    has_payload: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        """Number of spans."""
        return len(self.begin)


def concatenate(parts: list[Spans]) -> Spans:
    """Some spans one after the other."""
    names = [field.name for field in fields(Spans)]
    return Spans(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True)
class LaunchSpans:
    """A decoded launch. ``begin_ns`` and ``end_ns`` enclose every believable time in it and are 0 when there
    is none; ``blocks`` reported, ``stale_blocks`` had slots or a header of another launch.
    """

    launch: Launch
    spans: Spans
    begin_ns: int
    end_ns: int
    blocks: int
    stale_blocks: int
    overflow: int


class PairMap:
    """What each slot pair holds; pairs that no job uses get a job number of their own."""

    def __init__(self, table: JobTable | None, pairs: int, kernel: int = 0) -> None:
        """For ``pairs`` slot pairs of a kernel; without a table, or that kernel in it, no pair is known."""
        numbers = np.arange(pairs) + (0 if table is None else table.first_pair(kernel))
        self.job = (limits.UNKNOWN_JOB_BASE + numbers % limits.UNKNOWN_JOB_BASE).astype(np.uint16)
        self.warp = np.full(pairs, limits.NO_WARP, dtype=np.uint8)
        self.iteration = np.zeros(pairs, dtype=np.uint16)
        self.is_payload = np.zeros(pairs, dtype=np.bool_)
        self.is_instant = np.zeros(pairs, dtype=np.bool_)
        table = None if table is None else table.part(kernel)
        if table is None:
            return
        known = np.flatnonzero(table.pair_jobs[:pairs] >= 0)
        self.job[known] = table.pair_jobs[known]
        with_warp = np.flatnonzero(table.pair_warps[:pairs] >= 0)
        self.warp[with_warp] = table.pair_warps[with_warp]
        for array, told in (
            (self.iteration, table.iteration_of_pair),
            (self.is_payload, table.payload_of_pair),
        ):
            array[: len(told)] = told[:pairs]
        instants = np.array([job.instant for job in table.jobs], dtype=np.bool_)
        self.is_instant[known] = instants[table.pair_jobs[known]]


@dataclass(frozen=True)
class Window:
    """Device times that a launch can have had, both ends included, in ns.

    ``submit_ns``: when it was handed over, as far as the clocks are matched; None where that is not known.
    """

    low_ns: int
    high_ns: int
    submit_ns: int | None = None

    def holds(self, times: U64Array) -> npt.NDArray[np.bool_]:
        """Whether each time lies inside."""
        return (times >= np.uint64(self.low_ns)) & (times <= np.uint64(self.high_ns))

    def unwrapped(self, times: U64Array) -> U64Array:
        """Times that were widened from 32 bits against a header that came later than they did.

        A block may stamp long before its header: what is resident while the launch in front still runs waits
        for its end. Such a time lies 4.29 s behind itself, and is set back where it lies outside else.
        """
        if self.submit_ns is None:
            return times
        before = times - np.uint64(_WRAP_NS)
        earlier = (times >= np.uint64(_WRAP_NS)) & (before >= np.uint64(max(self.submit_ns, 0)))
        return np.where(earlier & self.holds(before) & ~self.holds(times), before, times)


def window_of(batch: StampBatch, anchor: Clock | None) -> Window:
    """When a launch can have run: by the host's clock if there is an anchor, else around its own headers."""
    launch = batch.launch
    if anchor is not None and 0 < launch.submit_ns <= launch.done_ns:
        to_device = anchor.device_ns - anchor.host_monotonic_ns
        drift = abs(launch.done_ns - anchor.host_monotonic_ns) >> _DRIFT_SHIFT
        submit, done, slack = launch.submit_ns + to_device, launch.done_ns + to_device, _SLACK_NS + drift
        window = _clipped(submit - slack, done + slack)
        return replace(window, submit_ns=min(submit - _BEFORE_SUBMIT_NS - drift, _MAX_U64))
    times = np.sort(batch.time_ns[batch.epoch == launch.epoch])
    if len(times) == 0:
        return Window(0, _MAX_U64)
    middle = int(times[len(times) // 2])
    return _clipped(middle - _UNANCHORED_NS, middle + _UNANCHORED_NS)


def _clipped(low_ns: int, high_ns: int) -> Window:
    return Window(min(max(low_ns, 0), _MAX_U64), min(max(high_ns, 0), _MAX_U64))


def decode_launch(batch: StampBatch, pairs: PairMap, anchor: Clock | None) -> LaunchSpans:
    """Pair the stamps of a launch. ``pairs`` covers at least the batch's slots."""
    window = window_of(batch, anchor)
    # A header of epoch 0 was never written; with slots behind it, they cannot be trusted either.
    fresh = batch.epoch == np.uint32(batch.launch.epoch)
    stamped = (batch.slots != 0).any(axis=1) if batch.slots.size else np.zeros(len(batch.block), dtype=bool)
    spans, times = _pair(batch, pairs, fresh, window)
    headers = batch.time_ns[fresh]
    times = np.concatenate([headers[window.holds(headers)], times])
    return LaunchSpans(
        launch=batch.launch,
        spans=spans,
        begin_ns=int(times.min()) if len(times) else 0,
        end_ns=int(times.max()) if len(times) else 0,
        blocks=int(np.count_nonzero(fresh)),
        stale_blocks=int(np.count_nonzero(~fresh & ((batch.epoch != 0) | stamped))),
        overflow=int(batch.overflow[fresh].sum(dtype=np.uint64)),
    )


def _pair(
    batch: StampBatch, pairs: PairMap, fresh: npt.NDArray[np.bool_], window: Window
) -> tuple[Spans, U64Array]:
    """The spans of a batch, and every believable stamp in it."""
    width = max(batch.slots.shape[1] // 2, 1)
    stamps = np.ascontiguousarray(batch.slots).reshape(-1, 2)
    index, payload, has_payload = _instances(stamps, width, pairs)
    row, pair = np.divmod(index, width)
    raw = stamps[index]
    has_begin, has_end = raw[:, 0] != 0, raw[:, 1] != 0
    begin, end = (_widen(side, batch.time_ns[row], window) for side in raw.T)

    flag = np.zeros(len(index), dtype=np.uint8)
    flag[has_begin & has_end & (end < begin)] = Flag.REVERSED
    flag[~has_end & ~pairs.is_instant[pair]] = Flag.NO_END
    flag[~has_begin] = Flag.NO_BEGIN
    flag[(has_begin & ~window.holds(begin)) | (has_end & ~window.holds(end))] = Flag.OUTSIDE
    flag[~fresh[row]] = Flag.STALE

    believed = flag < Flag.STALE
    times = np.concatenate([begin[believed & has_begin], end[believed & has_end]])
    spans = Spans(
        begin=np.where(has_begin, begin, end),
        dur=np.where((flag == Flag.OK) & has_end, end - begin, np.uint64(0)),
        job=pairs.job[pair],
        block=batch.block[row],
        sm=np.minimum(batch.sm, limits.MAX_SM).astype(np.uint16)[row],
        warp=pairs.warp[pair],
        flag=flag,
        iteration=pairs.iteration[pair],
        payload=payload,
        has_payload=has_payload,
    )
    return spans, times


def _instances(
    stamps: npt.NDArray[Any], width: int, pairs: PairMap
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint32], npt.NDArray[np.uint8]]:
    """Which pairs of a launch hold an instance, by index, and the payload of each.

    ``stamps`` is [blocks * width, 2]. A payload stands in the pair behind its instance's; one whose instance
    was never stamped makes an instance all the same, which then has no begin.
    """
    written = (stamps[:, 0] | stamps[:, 1]) != 0
    if not pairs.is_payload[:width].any():
        index = np.flatnonzero(written)
        return index, np.zeros(len(index), dtype=np.uint32), np.zeros(len(index), dtype=np.uint8)
    is_payload = np.resize(pairs.is_payload[:width], len(stamps))
    carries = np.zeros(len(stamps), dtype=np.bool_)
    carries[:-1] = (is_payload & (stamps[:, 1] != 0))[1:]
    index = np.flatnonzero((written & ~is_payload) | carries)
    behind = np.minimum(index + 1, len(stamps) - 1)
    payload = np.where(carries[index], stamps[behind, 0], 0).astype(np.uint32)
    return index, payload, carries[index].astype(np.uint8)


def _widen(stamps: npt.NDArray[Any], header_ns: U64Array, window: Window) -> U64Array:
    """Full times of raw stamps: the first one not long before the block's header with these low bits.

    The arithmetic of ``musetrace::abi::widen``, for arrays; both wrap around on purpose. Where the host's
    clock says that it was before the header, the one before.
    """
    if stamps.dtype.itemsize == 8:
        return stamps
    base = header_ns - np.uint64(_core.abi.WIDEN_BACK_NS)
    return window.unwrapped(base + (stamps - base.astype(np.uint32)).astype(np.uint64))
