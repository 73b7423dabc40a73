"""Where processes leave word: what is left is heard, who does not come is not waited for, nothing hangs."""

from __future__ import annotations

import itertools
import json
import threading

import pytest

from musetrace.errors import RecordError
from musetrace.record import meeting
from musetrace.record.meeting import Meeting, MeetingLostError, open_meeting, pauses
from musetrace.record.process_place import ProcessPlace

PLACE = ProcessPlace(0, 2, 0)


class DictStore:
    """A store as torch has them, in this process; ``gate`` holds all calls back, ``broken`` ends them."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False

    def _enter(self) -> None:
        self.gate.wait(20)
        if self.broken:
            raise RuntimeError("Broken pipe\n from the socket")

    def set(self, key: str, value: str) -> None:
        self._enter()
        self.kept[key] = value

    def get(self, key: str) -> bytes:
        self._enter()
        return self.kept[key].encode()

    def check(self, keys: list[str]) -> bool:
        self._enter()
        return all(key in self.kept for key in keys)

    def add(self, key: str, amount: int) -> int:
        self._enter()
        self.kept[key] = str(int(self.kept.get(key, "0")) + amount)
        return int(self.kept[key])

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        self._enter()
        if self.kept.get(key, "") == expected:
            self.kept[key] = desired
        return self.kept[key].encode()


@pytest.fixture
def store() -> DictStore:
    return DictStore()


def test_word_is_heard_once_it_is_left_and_recordings_do_not_hear_each_other(store: DictStore) -> None:
    first, second = Meeting(PLACE, store), Meeting(PLACE, store)
    assert first.heard("opened") is None
    first.tell("opened", id="abc", ranks=[1, 2])
    assert first.heard("opened") == {"id": "abc", "ranks": [1, 2]}
    assert second.heard("opened") is None
    assert first.wait_for(["nothing", "opened"], 0.0) == {"id": "abc", "ranks": [1, 2]}
    assert second.wait_for(["opened"], 0.05) is None


def test_of_two_words_that_come_between_two_looks_the_first_key_counts(store: DictStore) -> None:
    """As when a turn is refused and the stage is over at once: the refusal says why."""
    one = Meeting(PLACE, store)
    looked = store.check

    def both_come_behind(keys: list[str]) -> bool:
        found = looked(keys)
        for key, why in (("turn", "busy"), ("over", "no turn")):
            store.kept[one._prefix + key] = json.dumps({"refused": why})
        return found

    store.check = both_come_behind  # type: ignore[method-assign]
    assert one.wait_for(["turn", "over"], 0.0) == {"refused": "busy"}


def test_the_first_to_say_it_is_agreed_with_and_counters_count(store: DictStore) -> None:
    one = Meeting(PLACE, store)
    assert one.agree("held", held=2) == {"held": 2}
    assert one.agree("held", held=1) == {"held": 2}
    assert [one.count("gone", 1), one.count("gone", 1), one.count("gone")] == [1, 2, 2]


def test_a_store_that_breaks_is_said_in_one_line_and_not_asked_again(store: DictStore) -> None:
    one = Meeting(PLACE, store)
    store.broken = True
    line = (
        r"the store that the processes started with cannot be asked any more \(Broken pipe from the socket\)"
    )
    with pytest.raises(MeetingLostError, match=line):
        one.heard("opened")
    store.broken = False
    with pytest.raises(MeetingLostError, match="cannot be asked any more"):
        one.tell("opened")


def test_a_store_that_stands_still_keeps_nobody(store: DictStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "_ANSWER_S", 0.1)
    one = Meeting(PLACE, store)
    store.gate.clear()
    try:
        with pytest.raises(MeetingLostError, match=r"no answer for 0\.1 s"):
            one.wait_for(["opened"], 10)
    finally:
        store.gate.set()


def test_whoever_has_left_says_nothing_more_and_its_thread_ends(store: DictStore) -> None:
    before = set(threading.enumerate())
    one = Meeting(PLACE, store)
    (thread,) = set(threading.enumerate()) - before
    one.leave()
    with pytest.raises(MeetingLostError, match="this process has left the recording"):
        one.tell("late")
    thread.join(10)
    assert not thread.is_alive()
    assert store.kept == {}


def test_who_waits_asks_ever_more_seldom() -> None:
    some = list(itertools.islice(pauses(), 40))
    assert some == sorted(some)
    assert (some[0], some[-1]) == (0.005, 0.25)


def test_a_process_that_is_alone_meets_nobody() -> None:
    assert open_meeting({}, 1.0) is None
    assert open_meeting({"WORLD_SIZE": "1"}, 1.0) is None


def test_places_that_torchrun_does_not_give_are_refused_by_the_recorder() -> None:
    with pytest.raises(RecordError, match="WORLD_SIZE is 2 and RANK is not set"):
        open_meeting({"WORLD_SIZE": "2"}, 1.0)
