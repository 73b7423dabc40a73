"""The ranks of a model that this process holds, while other processes hold the others on GPUs of their own.

The ranks exchange inside the launches, through each other's GPU memory. Between passes the processes exchange
once: how the pass ended, and the logits, so that all of them decode the same tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.errors import DeviceError
from musetrace.job_table import JobTable, wait_sentence
from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_device import JOB_TABLE, CudaDevice
from musetrace.muse.device import TOKENS, LaunchTimeoutError
from musetrace.muse.peer_requirements import RankShare
from musetrace.muse.process_group import START_TIMEOUT_S, Bytes, ProcessGroup

_OK, _TIMED_OUT, _FAILED = range(3)
_REPORT = ("site", "rank", "block", "warp", "want", "got", "waited_ns")


@dataclass(frozen=True)
class _Outcome:
    """How a process's pass ended: ``report`` is the wait report of one that ran out of time."""

    number: int
    position: int
    state: int
    report: tuple[int, ...]

    def pack(self, logits: npt.NDArray[np.float32]) -> Bytes:
        head = np.array([self.number, self.position, self.state, *self.report], dtype="<i8")
        return np.concatenate([head.view(np.uint8), logits.ravel().view(np.uint8)])

    @classmethod
    def unpack(cls, data: Bytes) -> tuple[_Outcome, npt.NDArray[np.float32]]:
        """The outcome, and the logits float32[16, n] behind it."""
        size = (3 + len(_REPORT)) * 8
        number, position, state, *report = (int(value) for value in data[:size].view("<i8"))
        return cls(number, position, state, tuple(report)), data[size:].view(np.float32).reshape(TOKENS, -1)


class PeerDevice(CudaDevice):
    """See :class:`CudaDevice`; ranks of a method are counted among those held here.

    A pass ends with :meth:`end_pass`, in every process.

    Args:
        module: see ``CudaDevice``.
        config: the model.
        group: all processes; each makes its device with the same numbers.
        share: the ranks held here.
        options: the other numbers of a ``CudaDevice``.
    """

    def __init__(
        self, module: ModuleType, config: MuseConfig, group: ProcessGroup, share: RankShare, **options: Any
    ) -> None:
        super().__init__(module, config, share=share, **options)
        self._group = group
        self._passes = 0
        width = config.vocab_size // self.tp * self.ranks
        self._no_logits = np.zeros((TOKENS, width), dtype=np.float32)
        self._all_logits: npt.NDArray[np.float32] | None = None

    def connect(self) -> None:
        """Exchange memory handles with the other processes, once all have their weights; then launch.

        Raises:
            DeviceError: CUDA cannot map the memory of another GPU, or a process is gone.
        """
        with self._refused():
            handles = [bytes(of_rank) for of_rank in self._device.handles()]
        all_handles = b"".join(self._group.exchange_any(b"".join(handles)))
        size = len(handles[0])
        with self._refused():
            self._device.connect([all_handles[rank * size : (rank + 1) * size] for rank in range(self.tp)])
        self._group.meet(START_TIMEOUT_S)

    def close(self) -> None:
        """Let go of the others' memory, and meet them before their own is freed.

        Raises:
            DeviceError: a process is gone.
        """
        with self._refused():
            self._device.disconnect()
        try:
            self._group.meet()
            self._device.withdraw_handles()
        finally:
            self._group.close()

    def logits(self) -> npt.NDArray[np.float32]:
        """See :meth:`Device.logits`: those of all ranks, as the last pass that all ended well left them."""
        if self._all_logits is None:
            raise DeviceError("no pass has ended yet; run one before asking for its logits")
        return self._all_logits

    def require_whole(self) -> None:
        """Raises DeviceError once a process is gone."""
        self._group.require_whole()

    def end_pass(self, position: int, failure: DeviceError | None) -> None:
        """Hear how the pass ended in all processes; when it failed in one, make all usable again.

        Args:
            position: of the pass.
            failure: what this process raised in it.

        Raises:
            LaunchTimeoutError: a wait in it ran out of time here.
            DeviceError: it failed in some process, processes ran different passes, or one is gone.
        """
        self._passes += 1
        self._all_logits = None
        failure = self._settled(failure)
        logits = self._no_logits
        if failure is None:
            logits = super().logits()
        outcome = _Outcome(self._passes, position, *_state_of(failure))
        try:
            told = [_Outcome.unpack(data) for data in self._group.exchange(outcome.pack(logits))]
        except DeviceError as gone:
            raise gone from failure
        outcomes = [other for other, _ in told]
        wrong = failure or self._difference(outcomes)
        if wrong is None:
            self._all_logits = np.concatenate([part for _, part in told], axis=1)
            return
        self._reset_together()
        raise wrong

    def _settled(self, failure: DeviceError | None) -> DeviceError | None:
        """The failure, once no launch of this process runs any more."""
        try:
            self.wait(self._launched)
        except DeviceError as later:
            return failure if isinstance(failure, LaunchTimeoutError) else later
        return failure

    def _difference(self, outcomes: list[_Outcome]) -> DeviceError | None:
        """What went wrong in another process, or between them."""
        mine = outcomes[self._group.place.process]
        for process, other in enumerate(outcomes):
            if other.state != _OK:
                return DeviceError(f"process {process} ({self._ranks_of(process)}) {_told(other)}")
            if (other.number, other.position) != (mine.number, mine.position):
                return DeviceError(
                    f"process {process} ran its pass {other.number} at position {other.position}, this one "
                    f"its pass {mine.number} at {mine.position}; give all processes the same tokens"
                )
        return None

    def _ranks_of(self, process: int) -> str:
        first, last = process * self.ranks, (process + 1) * self.ranks - 1
        return f"rank {first}" if first == last else f"ranks {first} to {last}"

    def _reset_together(self) -> None:
        """All have ended their launches when they come here, and go on when all copies are empty."""
        able = True
        try:
            with self._refused():
                self._device.reset()
        except DeviceError:
            able = False
        answers = self._group.exchange(np.array([able], dtype=np.uint8))
        for process, answer in enumerate(answers):
            if not answer[0]:
                self._group.close()
                raise DeviceError(
                    f"the GPU of process {process} ({self._ranks_of(process)}) failed and cannot go on; "
                    "start all processes again"
                )


def _state_of(failure: DeviceError | None) -> tuple[int, tuple[int, ...]]:
    nothing = (0,) * len(_REPORT)
    if failure is None:
        return _OK, nothing
    if isinstance(failure, LaunchTimeoutError):
        return _TIMED_OUT, tuple(failure.report[name] for name in _REPORT)
    return _FAILED, nothing


def _told(outcome: _Outcome) -> str:
    if outcome.state == _FAILED:
        return "failed in the pass; its own message says why"
    report = dict(zip(_REPORT, outcome.report, strict=True))
    sentence = wait_sentence(report, JobTable.built_in(JOB_TABLE))
    return f"gave the pass up: {sentence}; the devices are usable, run the step again"
