"""The timeline's windows and run document: bytes and JSON against the run's own tables."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_run import build_decode_run
from flask import Flask
from flask.testing import FlaskClient
from timeline_questions import ask, ask_window, client_of, origin_ns, spans_table

from musetrace.analysis.kept_sums.cubes import keep_cubes
from musetrace.analysis.windows import lane_store, window
from musetrace.analysis.windows.lane_store import LaneMemory, Timeline
from musetrace.analysis.windows.pyramid import PyramidMemory, kept_pyramid
from musetrace.analysis.windows.pyramid_cells import keep_pyramid
from musetrace.analysis.windows.window import View
from musetrace.dashboard.api import blueprints, run_pictures, timelines, window_answer
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.store import Run, open_run


@pytest.fixture(scope="module")
def client(decode: Run) -> FlaskClient:
    return client_of(decode)


def test_a_small_window_has_every_span_with_its_ns(client: FlaskClient, decode: Run) -> None:
    launch = decode.launches(0).to_pylist()[1]
    begin = launch["begin_ns"] - origin_ns(decode)
    asked = {"from": begin + 20_000, "to": begin + 21_000, "seq": 41}
    header, arrays = ask_window(client, **asked)
    assert (header["mode"], header["seq"], header["sampled"], header["note"]) == ("spans", 41, False, "")
    assert (header["from"], header["to"], header["rows"]) == (asked["from"], asked["to"], [0, 8])
    expected = sorted(
        (
            x["rank"],
            x["step"],
            x["id"],
            x["rank"] * 4 + x["block"],
            x["begin_ns"] - origin_ns(decode),
            x["dur_ns"],
        )
        for x in spans_table(decode)
        if x["begin_ns"] - origin_ns(decode) < asked["to"] and x["end_ns"] - origin_ns(decode) > asked["from"]
    )
    assert len(expected) > 40
    assert header["count"] == len(expected)
    columns = (arrays[name].tolist() for name in ("rank", "step", "id", "row", "begin", "dur"))
    assert sorted(zip(*columns, strict=True)) == expected
    jobs = {job["id"]: job["name"] for job in ask(client, "run")["jobs"]}
    by_name = {(x["rank"], x["step"], x["id"]): x for x in spans_table(decode)}
    for rank, step, place, job, warp in zip(
        *(arrays[name].tolist() for name in ("rank", "step", "id", "job", "warp")), strict=True
    ):
        assert (jobs[job], warp) == (by_name[rank, step, place]["job"], by_name[rank, step, place]["warp"])


@pytest.mark.parametrize("strips", [1, 4])
def test_a_large_window_is_a_raster(
    client: FlaskClient, decode: Run, strips: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_answer, "MOST_EXACT", 10)
    header, arrays = ask_window(client, width=301, height=3, strips=strips, row_from=1)
    assert (header["mode"], header["bins"], header["rows"]) == ("raster", [3, 301], [1, 8])
    timeline = Timeline.of(decode, LaneMemory(1 << 24))
    rows = timeline.all_blocks()
    view = View(rows, 0, timeline.axis.to_ns, 1, 8, 301, 3, strips)
    found = window.raster(timeline, view, window.near(timeline, view))
    assert header["count"] == sum(x["block"] > 0 or x["rank"] > 0 for x in spans_table(decode))
    assert arrays["op"].tolist() == found.op.ravel().tolist()
    assert arrays["share"].tolist() == found.share.ravel().tolist()
    assert ("strip" in arrays) == (strips == 1)


def test_far_out_the_picture_is_of_launches_and_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build_decode_run(tmp_path / "run", steps=1)
    for module in (lane_store, timelines):
        monkeypatch.setattr(module, "MOST_NEAR", 10)
    waiting = client_of(open_run(path))
    header, arrays = ask_window(waiting)
    assert header["pending"]
    assert "look again" in header["note"]
    assert set(arrays["op"].tolist()) == {255}
    for _ in range(200):
        header, arrays = ask_window(waiting, seq=header["seq"] + 1)
        if not header["pending"]:
            break
        time.sleep(0.05)
    assert (header["pending"], header["note"]) == (False, "")
    assert header["sampled"].startswith("by launch")
    assert len(set(arrays["op"].tolist())) > 4
    again, _ = ask_window(client_of(open_run(path)))
    assert not again["pending"]  # it is in the index
    assert (
        "show blocks" in ask(waiting, "window", 400, rows="warps", block="r0b1", width=9, height=9)["error"]
    )


def test_of_many_spans_the_picture_is_of_kept_cells_and_damaged_ones_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build_decode_run(tmp_path / "run", steps=2)
    monkeypatch.setattr(window_answer, "MOST_READ", 10)
    client = client_of(open_run(path))
    near, _ = ask_window(client, strips=1, width=1, height=3, to=10**9 - 1)
    assert near["sampled"] is False  # while the cells are being made
    header, arrays = until_made(client, strips=1, width=1, height=3)
    assert header["sampled"].startswith("of kept cells of ")
    timeline = Timeline.of(open_run(path), LaneMemory(1 << 24))
    pyramid = kept_pyramid(timeline, PyramidMemory(1 << 20))
    assert pyramid is not None
    rows = timeline.all_blocks()
    view = View(rows, 0, timeline.axis.to_ns, 0, rows.count, 1, 3, 1)
    found = pyramid.raster(view, len(pyramid.cell_ns) - 1)
    assert [arrays[name].tolist() for name in ("op", "share", "strip")] == [
        getattr(found, name).ravel().tolist() for name in ("op", "share", "strip")
    ]
    kept = path / "cubes" / "pyramid.arrow"
    whole = kept.read_bytes()
    cells = pyramid.file.cells(0, 0, len(pyramid.cell_ns) - 1)
    assert cells is not None
    kept.write_bytes(whole.replace(cells.share.tobytes(), bytes(cells.share.size)))
    damaged = client_of(open_run(path))
    near, _ = ask_window(damaged, strips=1, width=1, height=3, to=10**9 - 1)
    assert near["sampled"] is False
    _, again = until_made(damaged, strips=1, width=1, height=3)
    assert again["op"].tolist() == arrays["op"].tolist()
    assert kept.read_bytes() == whole


def test_while_the_cells_are_made_the_picture_is_of_launches_and_says_that_another_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, go = build_decode_run(tmp_path / "run", steps=1), threading.Event()
    keep_cubes(open_run(path))
    for module in (lane_store, timelines):
        monkeypatch.setattr(module, "MOST_NEAR", 10)

    def slowly(timeline: Timeline) -> None:
        assert go.wait(20)
        keep_pyramid(timeline)

    monkeypatch.setattr(run_pictures, "keep_pyramid", slowly)
    client = client_of(open_run(path))
    header, _ = ask_window(client, strips=1)
    assert (header["pending"], header["sampled"][:9]) == (True, "by launch")
    assert not ask_window(client, strips=4)[0]["pending"], "its picture will be no other"
    go.set()
    for _ in range(200):
        header, _ = ask_window(client, strips=1)
        if not header["pending"]:
            break
        time.sleep(0.05)
    assert header["sampled"].startswith("of kept cells")


def until_made(client: FlaskClient, **fields: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer once it is made of kept cells. Each time another window is asked for: answers are kept."""
    for later in range(200):
        header, arrays = ask_window(client, **fields, to=10**9 + later)
        if header["sampled"]:
            break
        time.sleep(0.05)
    return ask_window(client, **fields)


def test_a_picture_that_cannot_be_made_says_why(decode: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    for module in (lane_store, timelines):
        monkeypatch.setattr(module, "MOST_NEAR", 10)
    monkeypatch.setattr(run_pictures, "keep_sums", broken)
    monkeypatch.setattr(run_pictures, "kept_overview", lambda *_: None)
    client = client_of(decode)
    for seq in range(200):
        header, _ = ask_window(client, seq=seq)
        if "look again" not in header["note"]:
            break
        time.sleep(0.05)
    assert "cannot be read any more: Input/output error" in header["note"]


def test_the_run_is_told_with_names_and_times_from_its_origin(client: FlaskClient, decode: Run) -> None:
    told = ask(client, "run")
    assert int(told["origin_ns"]) == origin_ns(decode)
    assert (told["ranks"], told["blocks"], told["from"]) == ([0, 1], 4, 0)
    ends = [end for rank in decode.ranks for end in decode.steps(rank)["end_ns"].to_pylist()]
    assert told["to"] == max(ends) - origin_ns(decode)
    table = decode.job_table
    assert [job["name"] for job in told["jobs"]] == [job.name for job in table.jobs]
    assert [told["ops"][job["op_index"]]["name"] for job in told["jobs"]] == [job.op for job in table.jobs]
    assert [job["awaits"] for job in told["jobs"]] == [job.awaits for job in table.jobs]
    stops = {job["name"]: job["stop"] for job in told["jobs"] if job["stop"] is not None}
    assert stops["stop1_wait_ranks"] == 1
    assert (
        len(told["launches"])
        == told["launches_total"]
        == sum(decode.launches(r).num_rows for r in decode.ranks)
    )
    for launch, row in zip(told["launches"], decode.launches(0).to_pylist(), strict=False):
        assert launch["from"] == row["begin_ns"] - origin_ns(decode)
        assert (launch["to"] - launch["from"], launch["kind"]) == (
            row["end_ns"] - row["begin_ns"],
            row["kind"],
        )
    assert [step["step"] for step in told["steps"]] == decode.step_ids(0)
    assert told["uncertainty_ns"] == 0
    assert told["minimap"]["strips"] == 4
    assert len(told["minimap"]["share"]) == 4 * told["minimap"]["bins"]
    assert max(told["minimap"]["share"]) > 60
    assert all(len(op["light"]) == len(op["dark"]) == 7 for op in told["ops"])


def test_rows_are_told_by_what_they_are(client: FlaskClient) -> None:
    assert ask(client, "rows", ranks="1")["rows"][2] == [1, 2, None, None, "rank 1, block 2"]
    warps = ask(client, "rows", rows="warps", block="r1b3")["rows"]
    assert warps[0] == [1, 3, 0, None, "rank 1, block 3, warp 0"]
    header, arrays = ask_window(client, rows="warps", block="r1b3", **{"from": 0, "to": 1_000_000})
    assert header["rows"] == [0, len(warps)]
    assert {warps[row][2] for row in arrays["row"].tolist()} == set(arrays["warp"].tolist())
    sms = ask(client, "rows", rows="sms")["rows"]
    assert sms[5] == [1, None, None, 1, "rank 1, SM 1"]


def test_an_answer_is_remembered_for_its_question_and_run(
    decode_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = window_answer.window_answer
    monkeypatch.setattr(
        "musetrace.dashboard.api.windows.window_answer", lambda *asked: made.append(1) or real(*asked)
    )
    client = client_of(open_run(decode_path), open_run(tiny_path))
    first, _ = ask_window(client, seq=1)
    again, _ = ask_window(client, seq=2)
    other, _ = ask_window(client, run=1, seq=3)
    assert len(made) == 2
    assert (first["seq"], again["seq"], other["count"]) == (1, 2, 3)
    assert first["count"] == again["count"] > 3
    assert ask(client, "run", run=1)["name"] != ask(client, "run")["name"]


def test_answers_of_all_kinds_make_room_for_others(decode: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MOST_ANSWER_BYTES", 20_000)
    client = client_of(decode)
    for to in range(1_000, 200_000, 20_000):
        told = ask_window(client, to=to)[0]["count"], ask(client, "area", to=to)["spans"]
        assert told[0] == told[1] > 0
        assert ask(client, "search", to=to)["total"] == told[0]


def test_a_run_that_grows_is_read_anew(tmp_path: Path) -> None:
    path = build_decode_run(tmp_path / "run", steps=1)
    runs = OpenRuns([open_run(path)])
    app = Flask("test")
    for blueprint in blueprints(runs):
        app.register_blueprint(blueprint)
    before = ask(app.test_client(), "run")
    for file in path.glob("*.mtj"):
        file.unlink()
    build_decode_run(path, steps=2)
    runs.refresh(0)
    after = ask(app.test_client(), "run")
    assert (len(before["steps"]), len(after["steps"])) == (1, 2)


def test_an_empty_run_has_rows_and_no_spans(empty_path: Path) -> None:
    client = client_of(open_run(empty_path))
    told = ask(client, "run")
    assert (told["steps"], told["launches"], told["spans"]) == ([], [], 0)
    if ask(client, "rows")["rows"]:
        assert ask_window(client)[0]["count"] == 0


def test_spans_with_a_flag_are_told_near_and_counted_far(
    decode: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    flagged = FlaggedRun(decode)
    client = client_of(flagged)
    header, arrays = ask_window(client, **{"from": 0, "to": 2_000})
    assert header["mode"] == "spans"
    assert set(arrays["flag"].tolist()) == {1}
    monkeypatch.setattr(window_answer, "MOST_EXACT", 10)
    header, arrays = ask_window(client, **{"from": 0, "to": 2_001})
    assert set(arrays["op"].tolist()) == {255}
    assert "with a flag" in header["note"]
    assert ask(client, "area")["flagged"] == len(spans_table(decode))


@dataclasses.dataclass
class FlaggedRun:
    """A run all of whose spans lack their end."""

    run: Run

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)

    def spans(self, rank: int, step: int) -> Any:
        import pyarrow as pa

        batch = self.run.spans(rank, step)
        zero = {
            "flag": np.ones(batch.num_rows, dtype=np.uint8),
            "dur": np.zeros(batch.num_rows, dtype=np.uint32),
        }
        for name, values in zero.items():
            batch = batch.set_column(batch.schema.get_field_index(name), name, pa.array(values))
        return batch
