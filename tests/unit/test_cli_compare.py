"""``musetrace compare``: its page, JSON, Markdown and JUnit, limits and exit codes, and its errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from musetrace.cli import main
from tests.unit.compared_runs import BLOCKS, LAUNCHES, STEPS, build, compare

Out = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with run ``a``, its like ``again``, and ``b``, in which norm takes 10 % longer."""
    monkeypatch.chdir(tmp_path)
    build(tmp_path / "a", seed=1)
    build(tmp_path / "again", seed=2)
    build(tmp_path / "b", norm=22_000, seed=3)
    return tmp_path


def one_line(capsys: Out) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("musetrace: ")
    return err.removeprefix("musetrace: ").removesuffix("\n")


def test_json_has_every_table_and_finds_what_was_planted(here: Path, capsys: Out) -> None:
    document = json.loads(compare(capsys, "a", "b", "--json"))
    first = document["ops"][0]
    assert (first["launch"], first["op"], first["kind"], first["verdict"]) == (
        "sliding",
        "norm",
        "compute",
        "slower",
    )
    assert first["difference_ns"] == pytest.approx(2000, abs=20)
    assert first["per_step_ns"] == LAUNCHES * first["difference_ns"]
    assert (first["steps_a"], first["n_a"]) == (STEPS, STEPS * LAUNCHES * BLOCKS)
    assert [row["verdict"] for row in document["ops"][1:]] == ["same"]
    assert document["warnings"] == []
    times = {(row["what"], row["of"]) for row in document["times"]}
    assert times == {
        *(("step", "device"), ("step", "host")),
        *((what, "sliding") for what in ("launch", "busy", "idle", "gap")),
    }
    assert (document["fail_over"], document["failures"], document["ranks"]) == (None, [], [0])


def test_a_blocks_time_is_shown_by_op_and_by_what_it_waits_for(here: Path, capsys: Out) -> None:
    build(here / "c", norm=16_000, wait=12_000, seed=4)
    lines = compare(capsys, "a", "c", "--width", "80").splitlines()
    title = "sliding: busy time by op and idle time by cause, means per block and launch"
    at = lines.index(title)
    rows = [re.split(r" {2,}| (?=\()", line, maxsplit=2)[:2] for line in lines[at + 3 : at + 7]]
    assert rows == [
        ["all ops", "(busy)"],
        ["all causes", "(idle)"],
        ["norm", "(busy)"],
        ["gemm_wait", "gemm_load"],
    ]
    assert [line.split()[-1] for line in lines[at + 3 : at + 7]] == ["faster", "slower", "faster", "slower"]


def test_rows_that_tell_nothing_are_shown_with_all(here: Path, capsys: Out) -> None:
    few = compare(capsys, "a", "again", "--width", "120")
    every = compare(capsys, "a", "again", "--width", "120", "--all")
    assert "--all shows them" not in every
    assert set(few.splitlines()) <= {*every.splitlines(), *(x for x in few.splitlines() if "--all" in x)}
    rows = json.loads(compare(capsys, "a", "again", "--json"))["idle"]
    assert all(row["most_rank"] is None for row in rows)  # there is one rank


@pytest.mark.parametrize("width", [60, 80, 109, 110, 200])
def test_no_line_of_the_page_is_wider_than_asked_for(here: Path, capsys: Out, width: int) -> None:
    lines = compare(capsys, "a", "b", "--width", str(width)).splitlines()
    assert max(map(len, lines)) <= width
    assert any(re.search(r"norm +compute +20\.0 +22\.0 +2\.0 +\+10\.0 .*slower$", line) for line in lines)
    assert "ops: 1 slower, 1 same" in "\n".join(lines)


def test_the_page_says_what_was_compared(here: Path, capsys: Out) -> None:
    assert re.search(r"^of +ranks 0$", compare(capsys, "a", "b"), re.MULTILINE)
    page = compare(capsys, "a", "b", "--rank", "0", "--kind", "sliding")
    assert re.search(r"^of +ranks 0, launches of kind sliding$", page, re.MULTILINE)
    assert re.search(r"^step +device", page, re.MULTILINE) is None


def test_saved_time_that_became_waiting_is_a_sentence(here: Path, capsys: Out) -> None:
    build(here / "c", norm=16_000, wait=12_000, seed=4)
    page = compare(capsys, "a", "c", "--width", "200")
    sentence = re.search(
        r"sliding: (\S+) us per block and launch that norm saved turned into waiting: "
        r"(\S+) us more in gemm_wait for gemm_load; the launch is as long as before",
        page,
    )
    assert sentence is not None
    assert [float(number) for number in sentence.groups()] == pytest.approx([4.0, 4.0], abs=0.02)
    build(here / "d", norm=19_000, wait=10_000, seed=4)
    assert "sliding: more than the " in compare(capsys, "a", "d", "--width", "200")


def test_an_incomplete_run_is_compared_and_the_exit_code_is_3(here: Path, capsys: Out) -> None:
    build(here / "killed", seed=5, end=False)
    page = compare(capsys, "a", "killed", code=3)
    assert "killed is incomplete" in page


def test_conditions_that_differ_are_warned_of_on_every_form(here: Path, capsys: Out) -> None:
    build(here / "c", seed=5, steps=4, meta={"device": {"kind": "synthetic", "driver": "1"}})
    said = ["device driver: not known in A, 1 in B", "B has 4 steps: fewer than 6 tell nothing"]
    options = ("--fail-over", "2%", "--junit", "out.xml", "--md", "out.md")
    assert json.loads(compare(capsys, "a", "c", "--json", *options))["warnings"] == said
    page = compare(capsys, "a", "c", "--width", "200")
    for warning in said:
        assert f"warning  {warning}" in page
        assert f"- {warning}" in (here / "out.md").read_text(encoding="utf-8")
        assert warning in (here / "out.xml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["a"], 2, "the following arguments are required: B (musetrace compare --help tells more)"),
        (["a", "b", "--fail-over", "x"], 2, "--fail-over 'x' is no percentage: give one like 2%"),
        (["a", "b", "--fail-over", "nan"], 2, "--fail-over 'nan' is no percentage: give one like 2%"),
        (["a", "b", "--band", "-1%"], 2, None),
        (["a", "b", "--band=-1%"], 2, "--band '-1%' is no percentage: give one like 2%"),
        (["a", "b", "--seed=-1"], 2, "--seed -1 is negative: give 0 or more"),
        (["a", "b", "--junit", "x.xml"], 2, None),
        (["a", "b", "--md", "no/x.md"], 2, "cannot write no/x.md: its folder does not exist; make it first"),
        (["a", "b", "--md", "a"], 2, "cannot write a; choose another file"),
        (["a", "b", "--kind", "head"], 1, "nothing to compare: A has no span in launches of kind 'head'"),
        (["a", "b", "--rank", "7"], 1, "nothing to compare: rank 7 is not in both: A has 0, B has 0"),
        (["a", "missing"], 1, None),
        (
            ["a", "other"],
            1,
            "nothing to compare: no kind of launch in common: A has sliding, B has global",
        ),
    ],
)
def test_errors_are_one_line(
    here: Path, capsys: Out, options: list[str], code: int, said: str | None
) -> None:
    build(here / "other", kind="global")
    assert main(["compare", *options]) == code
    line = one_line(capsys)
    assert said in (None, line)
    assert not list(here.glob(".x*"))
