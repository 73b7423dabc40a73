"""The timeline's questions about spans, against the run's own tables; refusals in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from decode_run import build_decode_run
from flask.testing import FlaskClient
from timeline_questions import ask, client_of, origin_ns, spans_table

from musetrace.store import Run, open_run


@pytest.fixture(scope="module")
def client(decode: Run) -> FlaskClient:
    return client_of(decode)


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
