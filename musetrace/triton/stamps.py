"""What a Triton kernel calls; does what ``musetrace/stamp/kernel_stamps.cuh`` does for one in CUDA C++."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from musetrace import _core

_REGION = np.dtype(_core.abi.region_header_dtype)
_BLOCK = np.dtype(_core.abi.block_header_dtype)
_REGION_BYTES = tl.constexpr(_REGION.itemsize)
_BLOCK_BYTES = tl.constexpr(_BLOCK.itemsize)
_ALIGN = tl.constexpr(int(_core.abi.REGION_ALIGN))


def _offset_of(header: np.dtype[np.void], field: str) -> tl.constexpr:
    assert header.fields is not None
    return tl.constexpr(int(header.fields[field][1]))


_BLOCKS = _offset_of(_REGION, "blocks")
_SLOTS = _offset_of(_REGION, "slots")
_SLOT_BYTES = _offset_of(_REGION, "slot_bytes")
_EPOCH = _offset_of(_REGION, "epoch")
_LAUNCHES = _offset_of(_REGION, "launches")
_DROPPED_BLOCKS = _offset_of(_REGION, "dropped_blocks")
_MISMATCH = _offset_of(_REGION, "mismatch")
_BLOCK_TIME = _offset_of(_BLOCK, "time_ns")
_BLOCK_EPOCH = _offset_of(_BLOCK, "epoch")
_BLOCK_SM = _offset_of(_BLOCK, "sm")
_BLOCK_OVERFLOW = _offset_of(_BLOCK, "overflow")


@triton.jit
def _clock_ns():
    # Not pure and with a memory clobber: neither Triton nor LLVM moves it across loads, stores and dots.
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,~{memory}", [], dtype=tl.uint64, is_pure=False, pack=1
    )


@triton.jit
def _clock_low_ns():
    # One bit is set, so that a time is never 0, which means "not written".
    low = tl.inline_asm_elementwise(
        "mov.u32 $0, %globaltimer_lo;", "=r,~{memory}", [], dtype=tl.uint32, is_pure=False, pack=1
    )
    return low | 1


@triton.jit
def _sm():
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def _word(address):
    return address.to(tl.pointer_type(tl.uint32))


@triton.jit
def _block():
    rows = tl.program_id(1) + tl.num_programs(1) * tl.program_id(2)
    return tl.program_id(0) + tl.num_programs(0) * rows


@triton.jit
def _open(region, JOBS: tl.constexpr):
    recorded = region != 0
    blocks = tl.load(_word(region + _BLOCKS), mask=recorded, other=0)
    slots = tl.load(_word(region + _SLOTS), mask=recorded, other=0)
    slot_bytes = tl.load(_word(region + _SLOT_BYTES), mask=recorded, other=0)
    epoch = tl.load(_word(region + _EPOCH), mask=recorded, other=0)
    block = _block()
    fits = recorded & (slots == JOBS._slots) & (slot_bytes == JOBS._slot_bytes)
    stamps = fits & (block < blocks)
    tl.atomic_add(_word(region + _LAUNCHES), 1, mask=recorded & (block == 0), sem="relaxed")
    tl.atomic_add(_word(region + _DROPPED_BLOCKS), 1, mask=fits & (block >= blocks), sem="relaxed")
    tl.store(_word(region + _MISMATCH), JOBS._shape, mask=recorded & (fits == 0))
    header = region + _REGION_BYTES + block.to(tl.int64) * _BLOCK_BYTES
    tl.store((header + _BLOCK_TIME).to(tl.pointer_type(tl.uint64)), _clock_ns(), mask=stamps)
    tl.store(_word(header + _BLOCK_EPOCH), epoch, mask=stamps)
    tl.store(_word(header + _BLOCK_SM), _sm(), mask=stamps)
    headers_end = _REGION_BYTES + blocks.to(tl.int64) * _BLOCK_BYTES
    slots_begin = region + (headers_end + _ALIGN - 1) // _ALIGN * _ALIGN
    first_slot = slots_begin + block.to(tl.int64) * JOBS._slots * JOBS._slot_bytes
    return tl.where(stamps, first_slot, 0), header


@triton.jit
def open(region, JOBS: tl.constexpr):
    """The stamps of this block, for begin(), end(), instant() and payload(). First thing in the kernel.

    ``region``: int64, the address that the recorder gives for this launch; 0 when it is not recorded. A
    region made for another table, mode or grid is left alone, but for a note that the recorder reads.
    """
    if JOBS._slot_bytes == 0:
        stamps = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64)
    else:
        stamps = _open(region.to(tl.int64), JOBS)
    return stamps


@triton.jit
def _put(stamps, job: tl.constexpr, slot: tl.constexpr, iteration, word):
    # What the first thread writes into a slot of an iteration, when there is one.
    base = stamps[0]
    if isinstance(iteration, tl.tensor):
        fits = (base != 0) & (iteration >= 0) & (iteration < job.iterations)
    else:
        tl.static_assert(
            iteration >= 0 and iteration < job.iterations, "the table gives this job fewer iterations"
        )
        fits = base != 0
    at = base + (job.slot + slot + iteration * job.stride) * job.slot_bytes
    if job.slot_bytes == 8:
        tl.store(at.to(tl.pointer_type(tl.uint64)), word.to(tl.uint64), mask=fits)
    else:
        tl.store(_word(at), word.to(tl.uint32), mask=fits)


@triton.jit
def _stamp(stamps, job: tl.constexpr, slot: tl.constexpr, iteration):
    if job.slot_bytes == 8:
        _put(stamps, job, slot, iteration, _clock_ns())
    else:
        _put(stamps, job, slot, iteration, _clock_low_ns())


@triton.jit
def begin(stamps, job: tl.constexpr, iteration=0):
    """The begin of a job, now. An iteration without a slot is counted as overflow, or does not compile."""
    if job.slot_bytes != 0:
        if isinstance(iteration, tl.tensor):
            lost = (stamps[0] != 0) & ((iteration < 0) | (iteration >= job.iterations))
            tl.atomic_add(_word(stamps[1] + _BLOCK_OVERFLOW), 1, mask=lost, sem="relaxed")
        _stamp(stamps, job, 0, iteration)


@triton.jit
def end(stamps, job: tl.constexpr, iteration=0):
    """The end of a job, now."""
    tl.static_assert(not job.instant, "an instant has no end")
    if job.slot_bytes != 0:
        _stamp(stamps, job, 1, iteration)


@triton.jit
def instant(stamps, job: tl.constexpr, iteration=0):
    """A job that is a moment."""
    tl.static_assert(job.instant, "the table says that this job has an end: declare it with instant=True")
    begin(stamps, job, iteration)


@triton.jit
def payload(stamps, job: tl.constexpr, word, iteration=0):
    """A number of this instance's own, 32 bits: bytes, a tile, an expert."""
    tl.static_assert(job.payload, "the table gives this job no payload: declare it with payload=True")
    if job.slot_bytes != 0:
        _put(stamps, job, 2, iteration, tl.full((), word, tl.uint32))
        _put(stamps, job, 3, iteration, tl.full((), 1, tl.uint32))
