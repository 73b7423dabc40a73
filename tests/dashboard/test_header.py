"""The header says under what conditions a run was recorded and what it lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import JournalBuilder, LaunchStamps, small_table
from hostile import HOSTILE

from musetrace.dashboard.conditions import Condition, conditions
from musetrace.dashboard.page import run_conditions
from musetrace.store import Run, open_run


def by_label(run: Any) -> dict[str, Condition]:
    return {entry.label: entry for entry in conditions(run)}


def test_a_sound_run_has_its_conditions_and_no_losses(decode: Run) -> None:
    found = by_label(decode)
    assert {label: entry.value for label, entry in found.items()} == {
        "device": "synthetic",
        "model": "synthetic",
        "extent": "2 ranks \N{MULTIPLICATION SIGN} 4 blocks, 3 steps",
        "stamps": "register",
        "clock": "CLOCK_MONOTONIC, tick 1 ns",
        "verdict": "complete",
        "losses": "none",
    }
    assert (found["verdict"].tone, found["losses"].tone) == ("good", "good")


@pytest.mark.parametrize(
    ("clock", "value", "tone", "detail"),
    [
        (
            {"name": "globaltimer", "tick_ns": 32},
            "globaltimer, tick 32 ns",
            "plain",
            "\N{PLUS-MINUS SIGN} 32 ns",
        ),
        (
            {"name": "globaltimer", "tick_ns": 0},
            "globaltimer, tick unknown",
            "poor",
            "The run says 0. No unc",
        ),
        ({"name": "globaltimer"}, "globaltimer, tick unknown", "poor", "nothing is ranked"),
        (None, "not known, tick unknown", "poor", "nothing is ranked"),
    ],
)
def test_the_clock_has_its_tick_or_a_warning(
    decode: Run, clock: object, value: str, tone: str, detail: str
) -> None:
    class Clocked:
        manifest = {**decode.manifest, "clock": clock}

        def __getattr__(self, name: str) -> Any:
            return getattr(decode, name)

    found = by_label(Clocked())["clock"]
    assert (found.value, found.tone) == (value, tone)
    assert detail in found.detail


def test_losses_are_named_counted_and_toned_by_what_they_mean(tmp_path: Path) -> None:
    table = small_table()
    journal = JournalBuilder(tmp_path, table, 1, world=2)
    slots = np.zeros((1, table.slots), dtype=np.uint64)
    slots[0, :5] = (1_000, 2_000, 0, 3_000, 4_000)
    journal.launch(LaunchStamps(0, 0, slots, np.array([1_000], dtype=np.uint64)))
    journal.step(0)
    journal.loss(0, 1, 7)
    journal.close()
    found = by_label(open_run(tmp_path))
    assert found["losses"].value == "lost launches 7, no end 1, no begin 1, missing ranks 1"
    assert found["losses"].tone == "bad"
    assert (found["verdict"].value, found["verdict"].tone) == ("incomplete", "poor")
    assert "1 of 2 ranks" in found["verdict"].detail
    page = json.dumps(run_conditions(open_run(tmp_path)), default=lambda part: part.to_plotly_json())
    assert "notes about this run" in page


@pytest.mark.parametrize(
    "value", [None, 3, [], {}, {"name": None}, {"name": [1, {"a": 2}]}, "", "x" * 1000, *HOSTILE]
)
def test_any_manifest_gives_a_header_of_bounded_text(decode: Run, value: object) -> None:
    class Odd:
        def __getattr__(self, name: str) -> Any:
            return getattr(decode, name)

        manifest = {section: value for section in ("device", "model", "stamps", "clock")}

    for entry in conditions(Odd()):
        assert 0 < len(entry.value) <= 60
        assert entry.value.isprintable()
        assert len(entry.detail) <= 600
