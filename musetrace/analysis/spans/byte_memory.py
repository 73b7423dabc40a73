"""What is made once and kept while there is room, by its bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """Something that knows what it takes of memory."""

    @property
    def bytes(self) -> int:
        """Its bytes."""
        ...


Thing = TypeVar("Thing", bound=Sized)


class ByteMemory(Generic[Thing]):
    """Things by key; those that were asked for longest ago go first. Safe to use from threads."""

    def __init__(self, most_bytes: int, threads: int, elsewhere: Callable[[], int] = lambda: 0) -> None:
        """Keep up to so many bytes, and always what is in use; ``threads`` make what is missing.

        ``elsewhere`` tells how many of the bytes another memory has taken by now. ``when_more`` are called
        with the bytes of what was made.
        """
        self.when_more: list[Callable[[int], None]] = []
        self._most_bytes, self._elsewhere = most_bytes, elsewhere
        self._kept: OrderedDict[Hashable, Thing] = OrderedDict()
        self._made: dict[Hashable, Future[Thing]] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="memory")

    @property
    def bytes(self) -> int:
        """What is kept."""
        return self._bytes

    def holds(self, some_bytes: int) -> bool:
        """Whether there is room for so many bytes in all."""
        return some_bytes <= self._most_bytes - self._elsewhere()

    def all_of(self, wanted: list[tuple[Hashable, Callable[[], Thing]]]) -> list[Thing]:
        """Things by key and how they are made, in order; what is missing is made, once however many ask."""
        found = [self._one(key, make) for key, make in wanted]
        return [one.result() if isinstance(one, Future) else one for one in found]

    def _one(self, key: Hashable, make: Callable[[], Thing]) -> Thing | Future[Thing]:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            if key not in self._made:
                self._made[key] = self._threads.submit(self._make, key, make)
            return self._made[key]

    def _make(self, key: Hashable, make: Callable[[], Thing]) -> Thing:
        try:
            made = make()
        except BaseException:
            with self._lock:
                del self._made[key]
            raise
        with self._lock:
            del self._made[key]
            self._kept[key] = made
            self._bytes += made.bytes
        self.make_room()
        for tell in self.when_more:
            tell(made.bytes)
        return made

    def make_room(self) -> None:
        """Forget what there is no room for."""
        most_bytes = self._most_bytes - self._elsewhere()
        with self._lock:
            while self._bytes > most_bytes and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].bytes
