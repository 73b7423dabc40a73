"""The graph of a launch once more in slow plain Python: every span against every span, times by recursion."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

sys.setrecursionlimit(20_000)


class OracleJob(NamedTuple):
    kind: str  # work, load or wait
    role: str
    team: bool
    awaits: int | None = None
    scope: str = "block"
    iterates: bool = False


class OracleSpan(NamedTuple):
    job: int
    rank: int
    block: int  # a number of its own for each block of each rank
    warp: int
    iteration: int
    begin: int
    end: int


class Stretch(NamedTuple):
    how: str
    span: int
    cause: int
    begin: int
    end: int


@dataclass
class Oracle:
    """Times are distinct, so that nothing is a matter of order."""

    jobs: list[OracleJob]
    spans: list[OracleSpan]
    windows: list[tuple[int, int | None]]  # by rank: begin of the launch, end of the one before
    tick: int
    factor: dict[int, Fraction] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self.every = range(len(self.spans))
        self.times: dict[tuple[str, int], int] = {}

    # who waited for whom

    def candidates(self, wait: int) -> list[int]:
        x, job = self.spans[wait], self.jobs[self.spans[wait].job]
        return [
            one
            for one in self.every
            if self.spans[one].job == job.awaits
            and (not job.iterates or self.spans[one].iteration == x.iteration)
            and (job.scope != "block" or self.spans[one].block == x.block)
            and (job.scope == "ranks" or self.spans[one].rank == x.rank)
        ]

    def ended(self, wait: int) -> list[int]:
        return [one for one in self.candidates(wait) if self.spans[one].end <= self.spans[wait].end]

    def producer(self, wait: int) -> int | None:
        if self.jobs[self.spans[wait].job].awaits is None:
            return None
        if self.ended(wait):
            return max(self.ended(wait), key=lambda one: self.spans[one].end)
        begun = [one for one in self.candidates(wait) if self.spans[one].begin <= self.spans[wait].end]
        return max(begun, key=lambda one: self.spans[one].begin, default=None)

    def under_way(self, wait: int) -> bool:
        return self.producer(wait) is not None and not self.ended(wait)

    def kind(self, span: int) -> str:
        return self.jobs[self.spans[span].job].kind

    def length(self, span: int) -> int:
        return self.spans[span].end - self.spans[span].begin

    def waits_like(self, wait: int) -> list[int]:
        job = self.spans[wait].job
        return [one for one in self.every if self.spans[one].job == job and self.producer(one) is not None]

    def for_piece(self, wait: int) -> bool:
        made = self.producer(wait)
        if made is None or not self.under_way(wait):
            return False
        longer = 2 * self.length(wait) >= self.spans[wait].end - self.spans[made].begin
        return self.kind(made) != "load" or longer

    def was_ready(self, wait: int) -> bool:
        made = self.producer(wait)
        assert made is not None
        return self.spans[made].end - self.spans[wait].begin < max(self.tick, 1)

    def behind(self, wait: int) -> int:
        """The time of a wait from where it had begun and its producer had ended."""
        made, x = self.producer(wait), self.spans[wait]
        assert made is not None
        return x.end - (x.begin if self.under_way(wait) else max(x.begin, self.spans[made].end))

    def least_own(self, wait: int) -> int:
        shown = [self.behind(one) for one in self.waits_like(wait) if not self.for_piece(one)]
        return min(self.length(wait), *shown) if shown else 0

    def least_way(self, wait: int) -> int:
        like = [one for one in self.waits_like(wait) if not self.under_way(one) and not self.was_ready(one)]
        return min((self.behind(one) for one in like), default=0)

    # what came before

    def lane(self, span: int) -> list[int]:
        x = self.spans[span]
        return [
            one for one in self.every if self.spans[one].block == x.block and self.spans[one].warp == x.warp
        ]

    def follows(self, span: int) -> int | None:
        """The next span of its warp."""
        later = [one for one in self.lane(span) if self.spans[one].begin > self.spans[span].begin]
        return min(later, key=lambda one: self.spans[one].begin, default=None)

    def before(self, span: int) -> tuple[str, int] | None:
        """The event of the span's warp that it began after: the end of one, or the begin of one around it."""
        at = self.spans[span].begin
        ends = [("end", one) for one in self.lane(span) if self.spans[one].end <= at]
        around = [("begin", x) for x in self.lane(span) if self.spans[x].begin < at < self.spans[x].end]
        return max(ends + around, key=self.recorded, default=None)

    def neighbour(self, span: int) -> int | None:
        """What ended in another warp behind that."""
        x, before = self.spans[span], self.before(span)
        mine = set(self.lane(span))
        others = [
            one
            for one in self.every
            if self.spans[one].block == x.block and one not in mine and self.spans[one].end <= x.begin
        ]
        if before is not None:
            behind, job = self.recorded(before), self.jobs[x.job]
            length = max(one.end for one in self.spans) - min(one.begin for one in self.spans)
            others = [one for one in others if self.spans[one].end > behind]
            if (x.begin - behind) * 50 < length:  # else it waited for something that is not stamped
                others = [at for at in others if job.team and self.jobs[self.spans[at].job].role == job.role]
        return max(others, key=lambda one: self.spans[one].end, default=None)

    def taken_from(self, span: int) -> int | None:
        """Whose pieces it takes: the last of them to end."""
        if self.kind(span) == "wait":
            return None
        for wait in self.every:
            made = self.producer(wait)
            if made is None or self.follows(wait) != span or self.spans[span].begin < self.spans[wait].end:
                continue
            pieces = self.under_way(wait) and self.kind(made) != "load"
            if not pieces and self.under_way(wait):
                continue
            done = [one for one in self.candidates(wait) if self.spans[one].end <= self.spans[span].end]
            last = max(done, key=lambda one: self.spans[one].end, default=None)
            if last is None or self.spans[last].end <= self.spans[span].begin:
                continue
            if pieces or self.leaves_some(wait, span, last):
                return last
        return None

    def leaves_some(self, wait: int, span: int, last: int) -> bool:
        """Whether what follows a wait for spans that had ended waits for others, too."""
        job = self.spans[span].job
        quickest = min(self.length(one) for one in self.every if self.spans[one].job == job)
        is_stop = self.jobs[self.spans[wait].job].scope == "ranks"
        behind = self.spans[span].end - self.spans[last].end
        waited = behind >= quickest or self.length(span) > 2 * quickest
        return self.kind(span) == "load" or (is_stop and waited)

    def room_from(self, load: int) -> int | None:
        """What works on a load while it goes on."""
        found = []
        for wait in self.every:
            if self.kind(load) != "load" or self.producer(wait) != load or not self.under_way(wait):
                continue
            user = self.follows(wait)
            while user is not None and self.kind(user) == "wait":
                user = self.follows(user)
            if user is not None and self.spans[user].begin < self.spans[load].end <= self.spans[user].end:
                found.append(user)
        return max(found, key=lambda one: self.spans[one].end, default=None)

    # times

    def recorded(self, event: tuple[str, int]) -> int:
        return int(getattr(self.spans[event[1]], event[0]))

    def scaled(self, time: int, span: int) -> int:
        factor = self.factor.get(self.spans[span].job, Fraction(1))
        return (time * factor + Fraction(1, 2)).__floor__()

    def replayed(self, event: tuple[str, int]) -> int:
        if event not in self.times:
            name, span = event
            self.times[event] = self.begin(span) if name == "begin" else self.end(span)
        return self.times[event]

    def launch_time(self, span: int) -> tuple[int | None, bool]:
        """The time of the launch that a span begins after, and whether it is the end of the one before."""
        begin, last = self.windows[self.spans[span].rank]
        events = [self.recorded(one) for one in self.anchors(span)]
        if (
            last is not None
            and last > begin
            and last <= self.spans[span].begin
            and last > max(events, default=-1)
        ):
            return last, True
        return (None if events else begin), False

    def anchors(self, span: int) -> list[tuple[str, int]]:
        before, other = self.before(span), self.neighbour(span)
        return [*([before] if before else []), *([("end", other)] if other is not None else [])]

    def begin(self, span: int) -> int:
        time, _ = self.launch_time(span)
        anchors = self.anchors(span)
        recorded = [self.recorded(one) for one in anchors] + ([] if time is None else [time])
        moved = [self.replayed(one) for one in anchors] + ([] if time is None else [time])
        gap = self.spans[span].begin - max(recorded)
        before = self.before(span)
        if before is not None and before[0] == "begin" and max(recorded) == self.recorded(before):
            gap = self.scaled(gap, before[1])
        return max(moved) + gap

    def end(self, span: int) -> int:
        x, begin = self.spans[span], self.replayed(("begin", span))
        made, room, taken = self.producer(span), self.room_from(span), self.taken_from(span)
        if self.kind(span) == "wait":
            if x.job in self.gone:
                return begin
            if made is None or (self.under_way(span) and not self.for_piece(span)):
                return begin + self.length(span)
            if self.under_way(span):
                piece = self.scaled(x.end - self.spans[made].begin, made)
                return max(begin + self.least_own(span), self.replayed(("begin", made)) + piece)
            needed = max(self.replayed(("end", one)) for one in self.ended(span))
            way = x.end - self.spans[made].end
            if self.was_ready(span):
                return max(begin + self.length(span), needed + min(self.least_way(span), way))
            return max(begin + self.least_own(span), needed + way)
        if room is not None:
            return max(begin, self.replayed(("end", room)) + x.end - self.spans[room].end)
        if taken is not None:
            wait = next(one for one in self.every if self.taken_by(one) == span)
            done = [one for one in self.candidates(wait) if self.spans[one].end <= x.end]
            way = x.end - self.spans[taken].end
            own = self.scaled(min(self.length(span), way), span)
            if self.spans[wait].job in self.gone:
                return begin + own
            return max(begin + own, max(self.replayed(("end", one)) for one in done) + self.scaled(way, span))
        return begin + self.scaled(self.length(span), span)

    def taken_by(self, wait: int) -> int | None:
        """What follows a wait, if it takes pieces."""
        next_one = self.follows(wait) if self.producer(wait) is not None else None
        return next_one if next_one is not None and self.taken_from(next_one) is not None else None

    def last_ends(self) -> list[int | None]:
        return [
            max(
                (self.replayed(("end", one)) for one in self.every if self.spans[one].rank == rank),
                default=None,
            )
            for rank in range(len(self.windows))
        ]

    # the path

    def path(self, begin: int, end: int) -> list[Stretch]:
        """From the last end back, all of it within the launch; in the order of time."""
        found: list[Stretch] = []
        now = end

        def go(how: str, span: int, to: int, cause: int = -1) -> None:
            nonlocal now
            target = max(min(now, to), begin)
            if target < now or cause >= 0:
                found.append(Stretch(how, span, cause, target, now))
            now = target

        at = max(self.every, key=lambda one: self.spans[one].end)
        go("tail", at, self.spans[at].end)
        inside = True
        while now > begin:
            x = self.spans[at]
            if inside:
                taken = None if self.room_from(at) is not None else self.taken_from(at)
                made = self.producer(at)
                if now >= x.end and made is not None and self.for_piece(at):
                    go("piece", at, now, made)
                    at = made
                elif now >= x.end and made is not None and not self.under_way(at) and not self.was_ready(at):
                    go("way", at, self.spans[made].end, made)
                    at = made
                elif taken is not None and self.enters(now, at, taken):
                    go("last_piece", at, now - (x.end - self.spans[taken].end), taken)
                    at = taken
                else:
                    go("own", at, x.begin)
                    inside = False
                continue
            time, is_launch = self.launch_time(at)
            if time is not None:
                if is_launch:
                    go("launch_way", at, time)
                    go("before", at, begin)
                go("head", at, begin)
                break
            name, cause = max(self.anchors(at), key=self.recorded)
            if name == "begin":
                at = cause
                go("own", at, self.spans[at].begin)
            elif cause == self.neighbour(at):
                go("hand_off", at, self.spans[cause].end, cause)
                at, inside = cause, True
            else:
                go("gap", at, self.spans[cause].end)
                at, inside = cause, True
        return found[::-1]

    def enters(self, now: int, span: int, taken: int) -> bool:
        """Whether a path that is in a span goes on in what it takes pieces of."""
        lag = self.spans[span].end - self.spans[taken].end
        return now - lag > max(self.spans[span].begin, self.spans[taken].begin) and (
            lag > 0 or now >= self.spans[span].end
        )
