"""One time axis for the ranks of a run: that of its first rank's clock, and how well others are known on it.

Ranks of one process share a clock. Two clocks are related by what both were measured against: rank 0's device
clock (ping-pong over peer memory) or the ``CLOCK_MONOTONIC`` of one host (anchors). Two hosts share nothing
but Unix time, whose error nobody knows: such ranks are placed by it, and count as not aligned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from musetrace.store import limits
from musetrace.store.offset_line import OffsetLine, OffsetPoint, chained, line_through
from musetrace.store.payloads import Clock

SAME_CLOCK, PEER_PING_PONG, HOST_ANCHORS, UNIX_TIME, UNKNOWN = (
    "same_clock",
    "peer_ping_pong",
    "host_anchors",
    "unix_time",
    "unknown",
)
# Its ranks need not be in one process to have one clock.
_HOST_CLOCK_NAME = "CLOCK_MONOTONIC"
_NO_OFFSET = OffsetLine((OffsetPoint(0, 0, 0),))


@dataclass(frozen=True)
class RankClock:
    """What a rank's journal says of its clock: META data, anchors, first and last time stamped (0: none)."""

    rank: int
    meta: dict[str, Any]
    anchors: tuple[Clock, ...]
    first_ns: int = 0
    last_ns: int = 0

    @property
    def host_clock(self) -> str | None:
        """Which ``CLOCK_MONOTONIC`` the anchors read."""
        told = self.meta.get("host_clock")
        return told if isinstance(told, str) else None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for ranks that one clock stamped."""
        clock = self.meta.get("clock")
        name = clock.get("name") if isinstance(clock, dict) else None
        if name == _HOST_CLOCK_NAME and self.host_clock is not None:
            return (name, self.host_clock)
        if isinstance(self.meta.get("process"), str):
            return ("process", self.meta["process"])
        if not self.meta:
            return ("rank", self.rank)
        return ("pid", str(self.meta.get("host")), str(self.meta.get("pid")))


def alignments(ranks: Sequence[RankClock]) -> dict[int, dict[str, Any]]:
    """How the clock of each rank stands to that of the first of them, as the manifest has it.

    ``clock``: the first rank with the same clock. ``method``: ``same_clock`` (as the first rank),
    ``peer_ping_pong``, ``host_anchors``, ``unix_time`` or ``unknown``. ``offset_ns``: to add to a time of the
    rank, at the start. ``error_ns``: what no time of the recording is further off; None: not aligned.
    ``measured_at_ns`` and ``offsets_ns``: the measurements, one or more, by the rank's clock; from one to the
    next the offset changes evenly, in all by ``drift_ppb`` give or take ``drift_error_ppb`` (None when
    measured once). ``residual_ns``: how far a measurement lies off the line between its neighbours at most;
    it is part of ``error_ns``; None for fewer than three. ``note``: why it is no better.
    """
    groups: dict[tuple[Any, ...], list[RankClock]] = {}
    for rank in sorted(ranks, key=lambda one: one.rank):
        groups.setdefault(rank.identity, []).append(rank)
    clocks = [_SharedClock(members) for members in groups.values()]
    return {rank.rank: clock.alignment(clocks[0], rank) for clock in clocks for rank in clock.members}


class _SharedClock:
    """A clock that stamped some ranks."""

    def __init__(self, members: Sequence[RankClock]) -> None:
        self.members = members
        self.is_root = members[0].rank == 0
        self.host_clock = members[0].host_clock
        anchors = {anchor for member in members for anchor in member.anchors}
        self.anchors = sorted(anchors, key=lambda anchor: anchor.device_ns)
        self.to_host = line_through(
            OffsetPoint(one.device_ns, one.host_monotonic_ns - one.device_ns, one.error_ns)
            for one in self.anchors
            if one.error_ns is not None
        )
        self.to_root = line_through(
            OffsetPoint(one.peer.at_ns, one.peer.offset_ns, one.peer.error_ns)
            for one in self.anchors
            if one.peer is not None
        )

    def alignment(self, axis: _SharedClock, rank: RankClock) -> dict[str, Any]:
        """Of one of the ranks, on the axis of another clock."""
        if axis is self:
            return self._told(SAME_CLOCK, _NO_OFFSET, 0)
        ways: list[tuple[int, str, OffsetLine]] = []
        for method, find in ((PEER_PING_PONG, self._by_peer), (HOST_ANCHORS, self._by_host)):
            line = find(axis)
            if line is not None and abs(line.points[0].offset_ns) <= limits.MAX_TIME_NS // 2:
                ways.append((_largest_error_ns(line, rank), method, line))
        if not ways:
            return self._by_unix_time(axis)
        error_ns, method, line = min(ways, key=lambda way: way[0])
        return self._told(method, line, error_ns, note=self._peer_failure())

    def _by_peer(self, axis: _SharedClock) -> OffsetLine | None:
        if self.to_root is None or axis.is_root:
            return self.to_root
        return None if axis.to_root is None else chained(self.to_root, axis.to_root)

    def _by_host(self, axis: _SharedClock) -> OffsetLine | None:
        if self.host_clock is None or self.host_clock != axis.host_clock:
            return None
        if self.to_host is None or axis.to_host is None:
            return None
        return chained(self.to_host, axis.to_host)

    def _by_unix_time(self, axis: _SharedClock) -> dict[str, Any]:
        if not self.anchors or not axis.anchors:
            note = "its journal, or that of the first rank, says nothing of its clock"
            return self._told(UNKNOWN, _NO_OFFSET, None, note=note)
        mine, theirs = self.anchors[0], axis.anchors[0]
        ahead_ns = (mine.unix_ns - mine.device_ns) - (theirs.unix_ns - theirs.device_ns)
        if abs(ahead_ns) > limits.MAX_TIME_NS // 2:
            ahead_ns = 0
        line = OffsetLine((OffsetPoint(mine.device_ns, ahead_ns, 0),))
        return self._told(UNIX_TIME, line, None, note=self._why_unaligned(axis))

    def _why_unaligned(self, axis: _SharedClock) -> str:
        if self.host_clock is None or axis.host_clock is None:
            return "the host's clock is not told"
        if self.host_clock != axis.host_clock:
            return "it is on another host, or in another time namespace, than the first rank"
        return "a clock was set while it was recorded, or not read well"

    def _peer_failure(self) -> str:
        return next((one.peer_failure for one in self.anchors if one.peer_failure), "")

    def _told(self, method: str, line: OffsetLine, error_ns: int | None, *, note: str = "") -> dict[str, Any]:
        return {
            "clock": self.members[0].rank,
            "method": method,
            "offset_ns": line.points[0].offset_ns,
            "error_ns": error_ns,
            "drift_ppb": line.drift_ppb,
            "drift_error_ppb": line.drift_error_ppb,
            "residual_ns": line.residual_ns,
            "measured_at_ns": [point.at_ns for point in line.points],
            "offsets_ns": [point.offset_ns for point in line.points],
            "note": note or None,
        }


def _largest_error_ns(line: OffsetLine, rank: RankClock) -> int:
    """Over all times of a rank."""
    times = [point.at_ns for point in line.points]
    times += [rank.first_ns, rank.last_ns] if rank.last_ns else []
    return max(line.error_ns(at_ns) for at_ns in times)
