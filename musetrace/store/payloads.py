"""The JSON payloads of a journal: parsed, checked and bounded, so that the store can trust them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from musetrace.job_bytes import MAX_BYTES
from musetrace.job_table import JOB_KINDS, SCOPES, JobTable, KernelShape
from musetrace.store import limits

FORMAT_NAME = "musetrace"
STAMP_MODES = ("register", "store", "off")
_DIGEST = re.compile("[0-9a-f]{1,64}")


class PayloadError(ValueError):
    """A payload with a good checksum that is not what its chunk type promises."""


@dataclass(frozen=True)
class Meta:
    """What a rank said about itself. ``job_table`` is None when it is not usable; ``data`` is all of it."""

    recording_id: str
    rank: int
    world: int
    blocks: int
    slots: int
    slot_bytes: int
    job_table: JobTable | None
    data: dict[str, Any]


@dataclass(frozen=True)
class PeerOffset:
    """At ``at_ns`` of the rank's device clock rank 0's was ``offset_ns`` ahead, give or take ``error_ns``."""

    at_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True)
class Clock:
    """One anchor: the device clock and the host clock read at the same moment, in ns.

    ``error_ns`` bounds how far the two readings are apart; None in journals that do not say. ``peer`` is a
    comparison with rank 0's device clock at about the same time, ``peer_failure`` why there is none.
    """

    device_ns: int
    host_monotonic_ns: int
    unix_ns: int
    error_ns: int | None = None
    peer: PeerOffset | None = None
    peer_failure: str | None = None

    def to_json(self) -> dict[str, Any]:
        """What is known of it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Step:
    """One step: host clock when it began and ended, and how many tokens it decoded.

    ``output`` is a hash of what it made, in hexadecimal digits (``musetrace.step_output``); "" for none.
    """

    step: int
    host_begin_ns: int
    host_end_ns: int
    tokens: int
    output: str = ""


@dataclass(frozen=True)
class Loss:
    """``launches`` launches were lost, the first of them ``launch`` of ``step``."""

    step: int
    launch: int
    launches: int
    reason: str


@dataclass(frozen=True)
class Report:
    """A wait report, as the device gave it."""

    data: dict[str, Any]


@dataclass(frozen=True)
class End:
    """The totals of a journal that was closed."""

    reason: str
    chunks: int
    stamp_chunks: int
    launches: int
    steps: int
    lost_launches: int


@dataclass(frozen=True)
class Launch:
    """Which launch a stamp chunk holds; the host clock when it was handed its buffer and when it was done.

    ``kernel`` is its place among the kernels of the job table; ``dropped_blocks`` of its blocks had no room.
    """

    step: int
    launch: int
    layer: int
    kind: str
    epoch: int
    submit_ns: int
    done_ns: int
    kernel: int = 0
    dropped_blocks: int = 0


def encode_json(data: dict[str, Any]) -> bytes:
    """Compact JSON; numpy scalars become numbers. Raises ValueError or TypeError for what JSON cannot say."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")


def decode_json(payload: bytes, limit_bytes: int = limits.MAX_JSON_BYTES) -> dict[str, Any]:
    """A JSON object of at most ``limit_bytes`` bytes. Raises PayloadError."""
    if len(payload) > limit_bytes:
        raise PayloadError(f"{len(payload)} bytes of JSON, the limit is {limit_bytes}")
    try:
        data = json.loads(payload, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise PayloadError("not a JSON object")
    return data


def _refuse_constant(name: str) -> float:
    raise PayloadError(f"{name} is not a number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise PayloadError(f"{digits[:20]} is too large a number")
    return value


def take_int(data: dict[str, Any], key: str, low: int, high: int) -> int:
    """``data[key]``, an integer in [low, high]. Raises PayloadError."""
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise PayloadError(f"{key} is not an integer from {low} to {high}")
    return value


def take_text(data: dict[str, Any], key: str, limit: int = limits.MAX_NAME_CHARS) -> str:
    """``data[key]``, a string of at most ``limit`` characters. Raises PayloadError."""
    value = data.get(key)
    if not isinstance(value, str) or len(value) > limit:
        raise PayloadError(f"{key} is not a string of at most {limit} characters")
    return value


def parse_meta(payload: bytes) -> Meta:
    """The META chunk. Raises PayloadError."""
    data = decode_json(payload, limits.MAX_META_BYTES)
    if data.get("format") != FORMAT_NAME:
        raise PayloadError("it is not made by musetrace")
    world = take_int(data, "world", 1, limits.MAX_RANKS)
    for section in ("device", "model", "build", "clock"):
        if not isinstance(data.get(section), dict):
            raise PayloadError(f"{section} is not an object")
    slots = take_int(data, "slots", 0, limits.MAX_SLOTS)
    if take_int(data, "slot_bytes", 0, 8) not in (0, 4, 8):
        raise PayloadError("slot_bytes is not 0, 4 or 8")
    return Meta(
        recording_id=take_text(data, "recording_id"),
        rank=take_int(data, "rank", 0, world - 1),
        world=world,
        blocks=take_int(data, "blocks", 0, limits.MAX_BLOCKS),
        slots=slots,
        slot_bytes=data["slot_bytes"],
        job_table=parse_job_table(data.get("job_table"), slots),
        data=data,
    )


def parse_job_table(data: Any, slots: int) -> JobTable | None:
    """A job table for ``slots`` slots, or None when it is not sound."""
    try:
        table = JobTable.from_json(data)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError):
        return None
    pairs, jobs = slots // 2, len(table.jobs)
    sound = (
        table.slots == slots
        and len(table.job_of_pair) == len(table.warp_of_pair) == pairs
        and jobs <= limits.MAX_JOBS
        and all(-1 <= job < jobs for job in table.job_of_pair)
        and all(-1 <= warp < limits.MAX_WARPS for warp in table.warp_of_pair)
        and len(table.iteration_of_pair) in (0, pairs)
        and all(0 <= iteration <= limits.MAX_ITERATION for iteration in table.iteration_of_pair)
        and len(table.payload_of_pair) in (0, pairs)
        and not any(table.payload_of_pair[:1])
        and all(job.kind in JOB_KINDS for job in table.jobs)
        and all(job.awaits is None or 0 <= job.awaits < jobs for job in table.jobs)
        and all(job.scope in (None, *SCOPES) for job in table.jobs)
        and all(job.bytes is None or 0 < job.bytes <= MAX_BYTES for job in table.jobs)
        and all(
            len(text) <= limits.MAX_NAME_CHARS for job in table.jobs for text in (job.name, job.op, job.role)
        )
        and len(table.kernels) <= limits.MAX_KERNELS
        and all(_is_sound(kernel, pairs) for kernel in table.kernels)
    )
    return table if sound else None


def _is_sound(kernel: KernelShape, pairs: int) -> bool:
    return (
        len(kernel.name) <= limits.MAX_NAME_CHARS
        and 0 <= kernel.blocks <= limits.MAX_BLOCKS
        and kernel.slots % 2 == 0
        and 0 <= kernel.first_pair <= kernel.first_pair + kernel.slots // 2 <= pairs
    )


def parse_clock(payload: bytes) -> Clock:
    """A CLOCK chunk. Raises PayloadError."""
    data = decode_json(payload)
    return Clock(
        device_ns=take_int(data, "device_ns", 0, limits.MAX_TIME_NS),
        host_monotonic_ns=take_int(data, "host_monotonic_ns", 0, limits.MAX_TIME_NS),
        unix_ns=take_int(data, "unix_ns", 0, limits.MAX_TIME_NS),
        error_ns=take_int(data, "error_ns", 0, limits.MAX_TIME_NS) if "error_ns" in data else None,
        peer=_peer_offset(data["peer"]) if "peer" in data else None,
        peer_failure=take_text(data, "peer_failure") if "peer_failure" in data else None,
    )


def _peer_offset(data: Any) -> PeerOffset:
    if not isinstance(data, dict):
        raise PayloadError("peer is not an object")
    return PeerOffset(
        at_ns=take_int(data, "at_ns", 0, limits.MAX_TIME_NS),
        offset_ns=take_int(data, "offset_ns", -limits.MAX_TIME_NS, limits.MAX_TIME_NS),
        error_ns=take_int(data, "error_ns", 0, limits.MAX_TIME_NS),
    )


def parse_step(payload: bytes) -> Step:
    """A STEP chunk. Raises PayloadError."""
    data = decode_json(payload)
    return Step(
        step=take_int(data, "step", 0, limits.MAX_STEP),
        host_begin_ns=take_int(data, "host_begin_ns", 0, limits.MAX_TIME_NS),
        host_end_ns=take_int(data, "host_end_ns", 0, limits.MAX_TIME_NS),
        tokens=take_int(data, "tokens", 0, limits.MAX_TOKENS),
        output=_digest(data["output"]) if "output" in data else "",
    )


def _digest(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise PayloadError("output is not a hash in hexadecimal digits")
    return value


def parse_loss(payload: bytes) -> Loss:
    """A LOSS chunk. Raises PayloadError."""
    data = decode_json(payload)
    return Loss(
        step=take_int(data, "step", 0, limits.MAX_STEP),
        launch=take_int(data, "launch", 0, limits.MAX_LAUNCHES_PER_STEP - 1),
        launches=take_int(data, "launches", 1, 1 << 48),
        reason=take_text(data, "reason"),
    )


def parse_report(payload: bytes) -> Report:
    """A REPORT chunk. Raises PayloadError."""
    return Report(decode_json(payload))


def parse_end(payload: bytes) -> End:
    """An END chunk. Raises PayloadError."""
    data = decode_json(payload)
    counts = ("chunks", "stamp_chunks", "launches", "steps", "lost_launches")
    return End(
        take_text(data, "reason", limits.MAX_TEXT_CHARS), *(take_int(data, n, 0, 1 << 62) for n in counts)
    )


def parse_launch(payload: bytes) -> Launch:
    """The launch of a stamp chunk. Raises PayloadError."""
    data = decode_json(payload)
    return Launch(
        step=take_int(data, "step", 0, limits.MAX_STEP),
        launch=take_int(data, "launch", 0, limits.MAX_LAUNCHES_PER_STEP - 1),
        layer=take_int(data, "layer", -(1 << 15), (1 << 15) - 1),
        kind=take_text(data, "kind"),
        epoch=take_int(data, "epoch", 1, (1 << 32) - 1),
        submit_ns=take_int(data, "submit_ns", 0, limits.MAX_TIME_NS),
        done_ns=take_int(data, "done_ns", 0, limits.MAX_TIME_NS),
        kernel=take_int({"kernel": 0, **data}, "kernel", 0, limits.MAX_KERNELS - 1),
        dropped_blocks=take_int({"dropped_blocks": 0, **data}, "dropped_blocks", 0, (1 << 32) - 1),
    )
