"""One run that several processes record: rank 0 makes its folder, and every process writes its ranks alone.

The processes hold equal numbers of ranks, process p those from ``p * held`` on. They meet twice: when the
recording is opened all wait for rank 0 to say that the folder is there, and at the end rank 0 waits for the
others to close. Both waits are bounded, and in between no process needs another.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from musetrace.errors import RecordError
from musetrace.record.clock_comparison import ClockComparison, Compared
from musetrace.record.closing import Closing
from musetrace.record.host_clock import boot_id
from musetrace.record.meeting import Meeting, MeetingLostError, open_meeting, pauses
from musetrace.record.output import OutputFolder, is_folder_of
from musetrace.record.peer_clock import PeerClock
from musetrace.record.run_output import Ending, OwnRanks, RunOutput, SoloRun
from musetrace.store import limits
from musetrace.store.frame import RECORDING_ID_BYTES
from musetrace.store.payloads import Clock

# Until rank 0 has opened the recording: processes that load a model start minutes apart.
OPEN_TIMEOUT_S = 300.0
# Until the others have closed it.
END_TIMEOUT_S = 30.0
# Until a file that another host has written is seen here.
_SEEN_TIMEOUT_S = 10.0


class SharedRun:
    """See :class:`musetrace.record.run_output.RunOutput`.

    Args:
        meeting: of all processes.
        path: the folder, the same for all.
        force: whether rank 0 replaces an earlier run.
        timeout_s: how long to wait for the others; None for 300 s at the start and 30 s at the end.
    """

    def __init__(
        self, meeting: Meeting, path: Path, *, force: bool = False, timeout_s: float | None = None
    ) -> None:
        self.path = path
        self._meeting = meeting
        self._place = meeting.place
        self.indexes = self._place.process == 0
        self._force = force
        self._open_timeout_s = OPEN_TIMEOUT_S if timeout_s is None else timeout_s
        self._end_timeout_s = END_TIMEOUT_S if timeout_s is None else timeout_s
        self._output: OutputFolder | None = None
        self._recording_id = os.urandom(RECORDING_ID_BYTES)
        self._clocks: ClockComparison | None = None
        self._compared = Compared()
        self._withdrawn = ""
        self._hurried = False

    def reserve(self) -> None:
        """Rank 0 makes the folder, in place of an earlier run; the others wait for its word, and look for it.

        Raises:
            RecordError: the folder cannot be used, or rank 0 says so; rank 0 does not come; or the folder
                that it has made is not the one here.
        """
        try:
            if self.indexes:
                self._make_folder()
            else:
                self._find_folder()
        except RecordError:
            self._meeting.leave()
            raise

    def _make_folder(self) -> None:
        try:
            self._output = OutputFolder(self.path, force=self._force)
            self._output.create()
            self._output.mark(self._recording_id)
        except RecordError as error:
            self._meeting.tell("opened", refused=str(error))
            raise
        told = {"path": str(self.path.absolute()), "host": socket.gethostname()}
        self._meeting.tell("opened", id=self._recording_id.hex(), **told)

    def _find_folder(self) -> None:
        opened = self._meeting.wait_for(["opened"], self._open_timeout_s)
        if opened is None:
            raise RecordError(
                f"rank 0 has not opened the recording within {self._open_timeout_s:g} s; record in every "
                "process, or look for the one that ended"
            )
        if "refused" in opened:
            raise RecordError(f"rank 0 does not record: {opened['refused']}")
        self._recording_id = bytes.fromhex(opened["id"])
        deadline = time.monotonic() + min(_SEEN_TIMEOUT_S, self._open_timeout_s)
        for pause_s in pauses():
            if is_folder_of(self.path, self._recording_id):
                return
            if time.monotonic() >= deadline:
                break
            time.sleep(pause_s)
        line = (
            f"rank 0 records into {opened['path']} on {opened['host']}, which is not {self.path.absolute()} "
            f"on {socket.gethostname()}; name one folder that all processes share"
        )
        self._tell_gone(line)
        raise RecordError(line)

    def begin(self, held: int) -> OwnRanks:
        """Nothing waits here: a rank may launch before rank 0 does.

        Raises:
            RecordError: another process holds another number of ranks.
        """
        place = self._place
        if self._withdrawn:
            raise RecordError(f"this recording was given up ({self._withdrawn}); open another one")
        world = held * place.processes
        if world > limits.MAX_RANKS:
            raise RecordError(f"{world} ranks cannot be recorded; the limit is {limits.MAX_RANKS}")
        first = self._meeting.agree("held", held=held, process=place.process)
        if first["held"] != held:
            raise RecordError(
                f"process {place.process} records {_many(held)} and process {first['process']} "
                f"{_many(first['held'])}; record the same number in every process"
            )
        return OwnRanks(self._recording_id, held * place.process, world)

    def compare_clocks(self, open_peer: Callable[[], PeerClock] | None, tick_ns: int) -> None:
        """See :class:`RunOutput`. What fails is kept, and raises nothing."""
        self._clocks = ClockComparison(self._meeting, open_peer, tick_ns)
        self._compared = self._clocks.first()

    def clocks_between(self, *, when_due: bool) -> Compared | None:
        """See :class:`RunOutput`."""
        clocks = self._clocks
        if clocks is None or self._hurried or (when_due and not clocks.moments.step()):
            return None
        return clocks.between()

    def begun(self, anchor: Clock) -> Clock:
        """Tell the others."""
        self._meeting.tell(f"came/{self._place.process}", boot_id=boot_id())
        return self._compared.onto(anchor)

    def last_clock(self, anchor: Clock) -> Clock:
        """Compare the clocks again; rank 0's turn is in :meth:`end`."""
        return anchor if self._clocks is None or self._hurried else self._clocks.last().onto(anchor)

    def withdraw(self, reason: str) -> None:
        """Tell rank 0; of its clock, nothing more is to be heard."""
        if self.indexes:
            if self._clocks is None:
                with contextlib.suppress(MeetingLostError):
                    self._meeting.tell("root", handle="", failure="rank 0 has no device")
            return
        if self._withdrawn:
            return
        self._withdrawn = reason
        with contextlib.suppress(MeetingLostError):
            self._tell_gone(reason)

    def end(self, *, recorded: bool) -> Ending:
        """Rank 0 waits for the others; see :class:`RunOutput`."""
        if not recorded:
            self.withdraw("the recorder was closed without a device")
        try:
            return self._wait_for_others() if self.indexes else self._say_good_bye()
        except MeetingLostError as error:
            lines = (f"{error}; the run is indexed when it is first opened",) if self.indexes else ()
            return Ending(False, lines)
        finally:
            self._meeting.leave()
            if self._output is not None:
                self._output.unmark()
                self._output.discard()

    def _say_good_bye(self) -> Ending:
        if not self._withdrawn:
            self._tell_gone()
        return Ending()

    def _wait_for_others(self) -> Ending:
        if self._hurried:
            return Ending(closed=False)
        if self._clocks is not None:
            self._clocks.serve_last()
        return Closing(self._meeting, self.path, self._end_timeout_s).wait()

    def hurry(self) -> None:
        """Compare no clocks and wait for nobody; rank 0 says so."""
        self._hurried = True
        if self.indexes and self._clocks is not None:
            with contextlib.suppress(MeetingLostError):
                self._clocks.close()

    def _tell_gone(self, reason: str = "") -> None:
        self._meeting.tell(f"gone/{self._place.process}", recorded_nothing=reason)
        self._meeting.count("recorded-nothing", bool(reason))
        self._meeting.count("gone", 1)


def _many(ranks: int) -> str:
    return f"{ranks} rank{'s' * (ranks != 1)}"


def open_output(path: Path, *, force: bool, alone: bool, timeout_s: float | None) -> RunOutput:
    """Where this process records into: with all processes of its program, or alone. Raises RecordError."""
    wait_s = OPEN_TIMEOUT_S if timeout_s is None else timeout_s
    meeting = None if alone else open_meeting(os.environ, wait_s)
    if meeting is None:
        return SoloRun(OutputFolder(path, force=force))
    return SharedRun(meeting, path, force=force, timeout_s=timeout_s)
