"""Where the processes of one recording leave word for each other: the key-value store that they started with.

That is the store of ``torchrun``'s agent, or the one behind ``torch.distributed`` where the program has
initialised it. Nothing here is a collective: a process that never comes keeps nobody from going on.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from musetrace.errors import RecordError, UsageError
from musetrace.record.process_place import ProcessPlace, process_place

Answer = TypeVar("Answer")
Word = dict[str, Any]

# A store that does not answer for so long is taken for gone.
_ANSWER_S = 20.0
# Thousands of processes ask one store, so who waits asks ever more seldom.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
_numbers = itertools.count()


class Store(Protocol):
    """What is used of a store of ``torch.distributed``; nothing that waits."""

    def set(self, key: str, value: str) -> None:
        """Write."""

    def get(self, key: str) -> bytes:
        """Read a key that is there."""

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there."""

    def add(self, key: str, amount: int) -> int:
        """Count, and return the new count."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Write unless the key has another value than expected (``""``: none); returns what it has then."""


class MeetingLostError(RecordError):
    """The store cannot be asked any more."""


class Meeting:
    """Keys that one process writes once and others read, and counters. Safe to use from several threads.

    Every process opens its recordings in the same order, so that the n-th of each is the same one.

    Args:
        place: of this process.
        store: one and the same for all processes.
    """

    def __init__(self, place: ProcessPlace, store: Store) -> None:
        self.place = place
        self._store = store
        self._prefix = f"musetrace/recording-{next(_numbers)}/"
        self._lost = ""
        self._calls: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name="musetrace-meeting", daemon=True).start()

    def tell(self, key: str, **word: Any) -> None:
        """Leave word. Raises MeetingLostError."""
        self._ask(lambda: self._store.set(self._prefix + key, json.dumps(word)))

    def heard(self, key: str) -> Word | None:
        """The word left under a key, None as long as there is none. Raises MeetingLostError."""

        def read() -> Word | None:
            name = self._prefix + key
            return json.loads(self._store.get(name)) if self._store.check([name]) else None

        return self._ask(read)

    def agree(self, key: str, **word: Any) -> Word:
        """Leave word unless somebody has; returns the word that counts. Raises MeetingLostError."""
        text = self._ask(lambda: self._store.compare_set(self._prefix + key, "", json.dumps(word)))
        return json.loads(text)  # type: ignore[no-any-return]

    def count(self, key: str, more: int = 0) -> int:
        """Add to a counter, and return it. Raises MeetingLostError."""
        return int(self._ask(lambda: self._store.add(self._prefix + key, more)))

    def wait_for(
        self, keys: Sequence[str], timeout_s: float, between_looks: Iterable[float] | None = None
    ) -> Word | None:
        """The word under the first of some keys that is there; None after the timeout.

        Args:
            between_looks: how long to sleep, as of :func:`pauses`.

        Raises:
            MeetingLostError: the store cannot be asked.
        """
        deadline = time.monotonic() + timeout_s
        for pause_s in between_looks or pauses():
            for at, key in enumerate(keys):
                if (word := self.heard(key)) is not None:
                    # Those in front of it may have come since they were looked for.
                    earlier = (found for one in keys[:at] if (found := self.heard(one)) is not None)
                    return next(earlier, word)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            time.sleep(min(pause_s, left_s))
        raise AssertionError("pauses never end")

    def leave(self) -> None:
        """Let go of the store; nothing is said or heard afterwards."""
        self._lost = self._lost or "this process has left the recording"
        self._calls.put(None)

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        if self._lost:
            raise MeetingLostError(self._lost)
        answers: SimpleQueue[Any] = SimpleQueue()
        self._calls.put((call, answers))
        try:
            answer = answers.get(timeout=_ANSWER_S)
        except Empty:
            answer = TimeoutError(f"no answer for {_ANSWER_S:g} s")
        if isinstance(answer, Exception):
            self._lost = (
                "the store that the processes started with cannot be asked any more "
                f"({' '.join(str(answer).split())[:160]}); look for the process that ended"
            )
            raise MeetingLostError(self._lost)
        return answer  # type: ignore[no-any-return]

    def _serve(self) -> None:
        """A thread of its own: a call to a store whose process stands still may never return."""
        while (asked := self._calls.get()) is not None:
            call, answers = asked
            try:
                answers.put(call())
            except Exception as error:
                answers.put(error)


def pauses(first_s: float = _FIRST_PAUSE_S, longest_s: float = _LONGEST_PAUSE_S) -> itertools.chain[float]:
    """How long to sleep between looks, longer and longer, for ever."""
    growing = []
    pause_s = first_s
    while pause_s < longest_s:
        growing.append(pause_s)
        pause_s *= 1.5
    return itertools.chain(growing, itertools.repeat(longest_s))


def open_meeting(environment: Mapping[str, str], timeout_s: float) -> Meeting | None:
    """Where the processes of this program meet; None for a process that is alone.

    Raises:
        RecordError: there are several processes, and no store that they share.
    """
    distributed = _initialised()
    try:
        place = process_place(environment)
    except UsageError as error:
        if distributed is None:
            raise RecordError(str(error)) from None
        place = None
    if place is not None and _has_agent(environment):
        return Meeting(place, _agent_store(environment, timeout_s))
    if distributed is not None:
        process, processes = distributed.get_rank(), distributed.get_world_size()
        if processes == 1:
            return None
        local = int(environment.get("LOCAL_RANK", "0"))
        return Meeting(ProcessPlace(process, processes, local), _default_store(distributed))
    if place is None:
        return None
    raise RecordError(
        f"this is process {place.process} of {place.processes}, and they share no store to agree on a "
        "recording; start them with torchrun, or call torch.distributed.init_process_group first"
    )


def _initialised() -> Any:
    """``torch.distributed`` when the program has initialised it; it is not loaded for that."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _has_agent(environment: Mapping[str, str]) -> bool:
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)


def _default_store(distributed: Any) -> Store:
    store: Store = distributed.PrefixStore("musetrace", distributed.distributed_c10d._get_default_store())
    return store


def _agent_store(environment: Mapping[str, str], timeout_s: float) -> Store:
    """The store of ``torchrun``, which lives as long as any of its processes."""
    address, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
    try:
        distributed: Any = import_module("torch.distributed")
    except ModuleNotFoundError as error:
        raise RecordError(
            "recording several processes into one run needs torch: pip install 'musetrace[record]'"
        ) from error
    try:
        store = distributed.TCPStore(
            address,
            int(port),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=min(timeout_s, _ANSWER_S)),
        )
    except (RuntimeError, ValueError) as error:
        raise RecordError(
            f"the store of torchrun at {address}:{port} does not answer "
            f"({' '.join(str(error).split())[:160]}); start all processes again"
        ) from None
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefixed: Store = distributed.PrefixStore(f"musetrace/attempt-{attempt}", store)
    return prefixed
