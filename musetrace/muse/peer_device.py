"""The ranks of a model that this process holds, while other processes hold the others on GPUs of their own.

The ranks exchange inside the launches, through each other's GPU memory. Between passes the processes exchange
once: how the pass ended, and what it left, so that all of them decode the same tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from musetrace.errors import DeviceError
from musetrace.job_table import wait_sentence
from musetrace.muse.config import MuseConfig
from musetrace.muse.cuda_device import CudaDevice
from musetrace.muse.cuda_draft import RankDrafts
from musetrace.muse.cuda_tables import table_of_report
from musetrace.muse.device import FROM_STATE, TOKENS, LaunchTimeoutError
from musetrace.muse.peer_requirements import RankShare
from musetrace.muse.process_group import START_TIMEOUT_S, Bytes, OpenExchange, ProcessGroup

_OK, _TIMED_OUT, _FAILED = range(3)
_REPORT = ("site", "rank", "block", "warp", "want", "got", "waited_ns")
# Of a step's state, what a step can start from.
_STARTS_FROM = ("position", "tokens", "parents", "top_k", "temperature", "seed")


@dataclass(frozen=True)
class _Outcome:
    """How a process's pass ended: ``report`` is the wait report of one that ran out of time.

    ``step_hash`` is one of the step's state behind it, and of whether there are logits; 0 where the pass does
    not go on from such a state.
    """

    number: int
    position: int
    step_hash: int
    state: int
    report: tuple[int, ...]

    def pack(self) -> Bytes:
        numbers = [self.number, self.position, self.step_hash, self.state, *self.report]
        return np.array(numbers, dtype="<i8").view(np.uint8)

    @classmethod
    def unpack(cls, data: Bytes) -> _Outcome:
        number, position, step_hash, state, *report = (int(value) for value in data.view("<i8"))
        return cls(number, position, step_hash, state, tuple(report))


class PeerDevice(CudaDevice):
    """See :class:`CudaDevice`; ranks of a method are counted among those held here.

    A pass ends with :meth:`end_pass`, in every process.

    Args:
        module: see ``CudaDevice``.
        config: the model.
        group: all processes; each makes its device with the same numbers.
        share: the ranks held here.
        options: the other numbers of a ``CudaDevice``, and its draft.
    """

    def __init__(
        self, module: ModuleType, config: MuseConfig, group: ProcessGroup, share: RankShare, **options: Any
    ) -> None:
        super().__init__(module, config, share=share, **options)
        self._group = group
        self._passes = 0
        self._all_logits: npt.NDArray[np.float32] | None = None
        # On their way while the host goes on: of a model of full size they may take longer than a step.
        self._coming_logits: OpenExchange | None = None
        # Where the next step goes on from; None once the host has placed a pass itself.
        self._begun_from: dict[str, Any] | None = None

    def start_together(self, start: Callable[[], None]) -> None:
        """Run what all processes run before they go on; where it fails in one, the others hear of it."""
        with self._group:
            start()

    def _add_draft(self, weights: RankDrafts) -> None:
        super()._add_draft(weights)
        self.connect()

    def set_step(self, **step: Any) -> None:
        """See ``CpuDevice.set_step``; all processes set the same."""
        super().set_step(**step)
        self._begun_from = super().step()

    def connect(self) -> None:
        """Exchange memory handles with the other processes, once all have their weights; then launch.

        So it is again when all have added a draft.

        Raises:
            DeviceError: CUDA cannot map the memory of another GPU, or a process is gone.
        """
        with self._refused():
            handles = [bytes(of_rank) for of_rank in self._device.handles()]
        all_handles = b"".join(self._group.exchange_any(b"".join(handles)))
        size = len(handles[0])
        with self._refused():
            self._device.connect([all_handles[rank * size : (rank + 1) * size] for rank in range(self.tp)])
        self._group.share_memory()
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
        """See :meth:`Device.logits`: those of all ranks, as the last pass that all ended well left them.

        Raises:
            DeviceError: there was no such pass, or a process is gone.
        """
        if self._coming_logits is not None:
            told = self._group.end_exchange(self._coming_logits)
            parts = [part.view(np.float32).reshape(TOKENS, -1) for part in told]
            self._all_logits, self._coming_logits = np.concatenate(parts, axis=1), None
        if self._all_logits is None:
            raise DeviceError("no pass has ended yet; run one before asking for its logits")
        return self._all_logits

    def meet(self) -> None:
        """Until all processes are about to launch: a late host does not count against the budget of a wait.

        Raises:
            DeviceError: a process is gone, or stands still.
        """
        self._group.meet()

    def end_pass(self, position: int, failure: DeviceError | None, has_logits: bool = True) -> None:
        """Hear how the pass ended in all processes; when it failed in one, make all usable again.

        A step that failed can be run again: all processes go on from where it began.

        Args:
            position: of the pass; ``FROM_STATE`` for one that goes on from the step's state.
            failure: what this process raised in it.
            has_logits: whether it made some.

        Raises:
            LaunchTimeoutError: a wait in it ran out of time here.
            DeviceError: it failed in some process, processes ran different passes, or one is gone.
        """
        self._passes += 1
        failure = self._settled(failure)
        step = super().step() if failure is None and position == FROM_STATE else None
        place = (position, 0) if step is None else (int(step["position"]), _hash_of(step, has_logits))
        mine = _Outcome(self._passes, *place, *_state_of(failure))
        try:
            told = [_Outcome.unpack(data) for data in self._group.exchange(mine.pack())]
        except DeviceError as gone:
            raise gone from failure
        self._all_logits = self._coming_logits = None
        wrong = failure or self._difference(mine, told)
        if wrong is None:
            self._begun_from = step
            if has_logits:
                self._send_logits()
            return
        self._reset_together()
        if position == FROM_STATE:
            self._begin_again()
        raise wrong

    def _begin_again(self) -> None:
        """The state in which the step began; what it verified has taken the place of the draft's features.

        A step that has no room in the cache was not launched, and left it as it was.
        """
        begun = self._begun_from
        if begun is not None and begun["position"] + TOKENS <= self.capacity:
            self.set_step(**{name: begun[name] for name in _STARTS_FROM}, kept=0)

    def _send_logits(self) -> None:
        own = np.ascontiguousarray(super().logits())
        self._coming_logits = self._group.begin_exchange(own.reshape(-1).view(np.uint8))

    def _settled(self, failure: DeviceError | None) -> DeviceError | None:
        """The failure, once no launch of this process runs any more."""
        try:
            self.wait(self._launched)
        except DeviceError as later:
            return failure if isinstance(failure, LaunchTimeoutError) else later
        return failure

    def _difference(self, mine: _Outcome, outcomes: list[_Outcome]) -> DeviceError | None:
        """What went wrong in another process, or between them."""
        for process, other in enumerate(outcomes):
            if other.state != _OK:
                return DeviceError(f"process {process} ({self._ranks_of(process)}) {_told(other)}")
            if (other.number, other.position) != (mine.number, mine.position):
                return DeviceError(
                    f"process {process} ran its pass {other.number} at position {other.position}, this one "
                    f"its pass {mine.number} at {mine.position}; give all processes the same tokens"
                )
            if other.step_hash != mine.step_hash:
                return DeviceError(
                    f"process {process} has other tokens than this one behind pass {mine.number} at position "
                    f"{mine.position}; give all processes the same tokens and the same sampling"
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


def _hash_of(step: dict[str, Any], has_logits: bool) -> int:
    text = json.dumps([step, has_logits], sort_keys=True)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


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
    sentence = wait_sentence(report, table_of_report(report))
    return f"gave the pass up: {sentence}; the devices are usable, run the step again"
