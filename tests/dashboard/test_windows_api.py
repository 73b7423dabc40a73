"""The timeline's routes: bytes and JSON against the run's own tables; refusals in a sentence."""

from __future__ import annotations

import dataclasses
import json
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_run import build_decode_run
from flask import Flask
from flask.testing import FlaskClient

from musetrace.analysis.windows import lane_store, window
from musetrace.analysis.windows.lane_store import LaneMemory, Timeline
from musetrace.analysis.windows.window import View
from musetrace.dashboard.api import blueprints, timelines, window_answer
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.store import Run, open_run


def client_of(*runs: Any) -> FlaskClient:
    app = Flask("test")
    for blueprint in blueprints(OpenRuns(runs)):
        app.register_blueprint(blueprint)
    return app.test_client()


@pytest.fixture(scope="module")
def client(decode: Run) -> FlaskClient:
    return client_of(decode)


def ask(client: FlaskClient, route: str, code: int = 200, **fields: object) -> Any:
    answer = client.get(f"/api/{route}", query_string=fields)
    assert answer.status_code == code, answer.get_data(as_text=True)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.mimetype == "application/json"
    return json.loads(answer.data)


def ask_window(client: FlaskClient, **fields: object) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Header and arrays, taken apart as the page does it."""
    answer = client.get("/api/window", query_string={"width": 300, "height": 100, **fields})
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert (answer.mimetype, answer.headers["Cache-Control"]) == ("application/octet-stream", "no-store")
    (length,) = struct.unpack_from("<I", answer.data)
    header = json.loads(answer.data[4 : 4 + length])
    at, arrays = 4 + length, {}
    for array in header["arrays"]:
        assert at % 8 == 0
        dtype = np.dtype(array["dtype"]).newbyteorder("<")
        arrays[array["name"]] = np.frombuffer(answer.data, dtype, array["length"], at)
        at += -(-dtype.itemsize * array["length"] // 8) * 8
    assert at == len(answer.data)
    return header, arrays


def spans_table(run: Run) -> list[dict[str, Any]]:
    """All spans as the store tells them, with their place in the step."""
    found = []
    for rank in run.ranks:
        for step in run.step_ids(rank):
            rows = run.table("spans", rank=rank, step=step).to_pylist()
            found += [{**row, "id": place} for place, row in enumerate(rows)]
    return found


def origin_ns(run: Run) -> int:
    return min(base for rank in run.ranks for base in run.steps(rank)["base_ns"].to_pylist())


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


def test_a_picture_that_cannot_be_made_says_why(decode: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    for module in (lane_store, timelines):
        monkeypatch.setattr(module, "MOST_NEAR", 10)
    monkeypatch.setattr(timelines, "keep_cubes", broken)
    monkeypatch.setattr(timelines, "kept_overview", lambda *_: None)
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


def test_a_span_tells_whom_it_waited_for_and_who_waited(client: FlaskClient, decode: Run) -> None:
    waits = [
        x for x in spans_table(decode) if x["job"] == "stop1_wait_ranks" and x["launch_kind"] == "sliding"
    ]
    wait = waits[0]
    told = ask(client, "span", rank=wait["rank"], step=wait["step"], id=wait["id"])
    span = told["span"]
    assert (span["begin_ns"], span["end_ns"]) == (str(wait["begin_ns"]), str(wait["end_ns"]))
    assert (span["begin"], span["dur_ns"]) == (wait["begin_ns"] - origin_ns(decode), wait["dur_ns"])
    assert (span["launch"], span["layer"], span["kind"]) == (wait["launch"], wait["layer"], "sliding")
    sends = [
        x
        for x in spans_table(decode)
        if x["job"] == "o_proj_send" and (x["step"], x["launch"]) == (wait["step"], wait["launch"])
    ]
    last = max((x for x in sends if x["end_ns"] <= wait["end_ns"]), key=lambda x: x["end_ns"])
    made = told["producer"]
    assert (made["rank"], made["step"], made["id"]) == (last["rank"], last["step"], last["id"])
    assert made["late_by_ns"] == last["end_ns"] - wait["begin_ns"]
    assert told["producer_why"] == ""
    back = ask(client, "span", rank=made["rank"], step=made["step"], id=made["id"])
    assert back["producer"] is None
    assert back["producer_why"] == "It is no wait."
    assert (wait["rank"], wait["step"], wait["id"]) in {
        (x["rank"], x["step"], x["id"]) for x in back["consumers"]
    }
    assert back["consumers_total"] == len(back["consumers"])


def test_point_and_neighbours(client: FlaskClient, decode: Run) -> None:
    span = next(x for x in spans_table(decode) if x["rank"] == 1 and x["block"] == 2 and x["kind"] == "send")
    begin = span["begin_ns"] - origin_ns(decode)
    told = ask(client, "at", row=6, strip=2, t=begin)["span"]
    assert (told["rank"], told["id"], told["begin"]) == (1, span["id"], begin)
    assert (told["block"], told["warp"], told["end"] - told["begin"]) == (2, span["warp"], span["dur_ns"])
    assert ask(client, "at", row=6, strip=2, t=-50)["span"] is None
    assert ask(client, "at", row=0, strip="any", t=-50, slack=10_000)["span"]["rank"] == 0
    following = ask(client, "next", rank=1, step=span["step"], id=span["id"])["span"]
    assert following["id"] == span["id"] + 1
    back = ask(client, "next", rank=1, step=span["step"], id=following["id"], dir=-1)["span"]
    assert back["id"] == span["id"]
    same = ask(client, "next", rank=1, step=span["step"], id=span["id"], strips=4)["span"]
    kinds = {job["id"]: job["kind"] for job in ask(client, "run")["jobs"]}
    assert kinds[same["job"]] in {"send", "recv", "sync"}


def test_an_area_of_everything_counts_every_span(client: FlaskClient, decode: Run) -> None:
    told = ask(client, "area")
    table = spans_table(decode)
    assert told["spans"] == len(table)
    row = next(row for row in told["rows"] if (row["name"], row["kind"]) == ("gemm1", "compute"))
    lengths = sorted(x["dur_ns"] for x in table if (x["op"], x["kind"]) == ("gemm1", "compute"))
    assert (row["n"], row["total_ns"], row["min_ns"], row["max_ns"]) == (
        len(lengths),
        sum(lengths),
        lengths[0],
        lengths[-1],
    )
    assert row["p50_ns"] == lengths[-(-len(lengths) // 2) - 1]
    assert sum(row["counts"]) == row["n"]
    assert len(row["counts"]) == len(told["edges_ns"]) - 1
    assert "in part" in told["note"]


def test_a_search_is_told_in_pages(client: FlaskClient, decode: Run) -> None:
    expected = sorted(
        (x["begin_ns"] - origin_ns(decode), x["rank"], x["step"], x["id"])
        for x in spans_table(decode)
        if "gemm" in x["op"] and x["dur_ns"] >= 500
    )
    assert len(expected) > 200
    told, after = list[tuple[int, ...]](), ""
    while True:
        page = ask(client, "search", op="GEMM", min_ns=500, after=after)
        assert page["total"] == len(expected)
        told += [(x["begin"], x["rank"], x["step"], x["id"]) for x in page["hits"]]
        if not page["more"]:
            break
        after = ".".join(map(str, told[-1]))
    assert told == expected
    longest = ask(client, "search", op="gemm", sort="dur")["hits"][0]
    assert longest["end"] - longest["begin"] == max(
        x["dur_ns"] for x in spans_table(decode) if "gemm" in x["op"]
    )


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


REFUSED = [
    ("window", {}, 400, "width must be a whole number from 1 to 8192"),
    ("window", {"width": 5}, 400, "height must be a whole number"),
    ("window", {"width": 8193, "height": 5}, 400, "width must be"),
    ("window", {"width": "1e3", "height": 5}, 400, "width must be"),
    ("window", {"width": 5, "height": 5, "from": 7, "to": 7}, 400, "from must be before to"),
    ("window", {"width": 5, "height": 5, "from": 1 << 60}, 400, "from must be"),
    ("window", {"width": 5, "height": 5, "strips": 3}, 400, "strips must be one of 1, 4"),
    ("window", {"width": 5, "height": 5, "rows": "ranks"}, 400, "rows must be one of"),
    ("window", {"width": 5, "height": 5, "row_from": 8}, 400, "there are no such rows: there are 8"),
    ("window", {"width": 5, "height": 5, "run": 1}, 404, "there is no run 1: there are 1"),
    ("window", {"width": 5, "height": 5, "run": "../../etc/passwd"}, 400, "run must be a whole number"),
    ("window", {"width": 5, "height": 5, "ranks": "0,7"}, 404, "this run has no rank 7"),
    ("window", {"width": 5, "height": 5, "ranks": "0;1"}, 400, "ranks must be"),
    ("rows", {"rows": "warps"}, 400, "rows=warps needs block"),
    ("rows", {"rows": "warps", "block": "r0b4"}, 400, "no block 4 of rank 0"),
    ("span", {"rank": 0, "step": 0, "id": 1 << 31}, 404, "no span 2147483648 in step 0 of rank 0"),
    ("span", {"rank": 0, "step": 77, "id": 0}, 404, "no span 0 in step 77 of rank 0"),
    ("span", {"rank": -1, "step": 0, "id": 0}, 400, "rank must be"),
    ("at", {"row": 8, "t": 0}, 404, "there is no row 8"),
    ("at", {"row": 1}, 400, "t must be"),
    ("at", {"row": 1, "t": 0, "strip": 4}, 400, "strip must be one of"),
    ("next", {"rank": 0, "step": 0, "id": 0, "dir": 2}, 400, "dir must be one of 1, -1"),
    ("search", {"after": "1.2"}, 400, "after must be 4 whole numbers"),
    ("search", {"op": "x" * 201}, 400, "op is longer than 200 characters"),
    ("search", {"min_ns": -1}, 400, "min_ns must be"),
    ("area", {"from": 9, "to": 3}, 400, "from must be before to"),
]


@pytest.mark.parametrize(("route", "fields", "code", "sentence"), REFUSED)
def test_what_cannot_be_answered_is_refused_in_a_sentence(
    client: FlaskClient, route: str, fields: dict[str, object], code: int, sentence: str
) -> None:
    told = ask(client, route, code, **fields)
    assert list(told) == ["error"]
    assert sentence in told["error"]
    assert "Traceback" not in told["error"]


def test_a_run_that_cannot_be_read_any_more_says_so(decode_path: Path, tmp_path: Path) -> None:
    run = open_run(build_decode_run(tmp_path / "run", steps=1))
    client = client_of(run)
    ask(client, "run")
    for file in (tmp_path / "run").rglob("*.arrow"):
        file.write_bytes(b"no such thing")
    run._kept.clear()
    told = ask(client, "span", 500, rank=0, step=0, id=0)
    assert "cannot read" in told["error"]


def test_a_defect_has_a_number_and_no_traceback(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("musetrace.dashboard.api.span_routes.area", lambda *_: 1 / 0)
    told = ask(client, "area", 500, **{"from": 1, "to": 2})
    assert "fault" in told["error"]
    assert "division" not in told["error"]


def test_names_stay_what_they_are(hostile_path: Path, hostile_names: tuple[str, ...]) -> None:
    told = ask(client_of(open_run(hostile_path)), "run")
    assert {op["name"] for op in told["ops"]} > set(hostile_names[:4])
    found = ask(client_of(open_run(hostile_path)), "search", op="<B>BOLD")
    assert found["total"] > 0


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
