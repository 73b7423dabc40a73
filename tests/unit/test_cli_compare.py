"""``musetrace compare``: its page, JSON, Markdown and JUnit, limits and exit codes, and its errors."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from musetrace.cli import main
from musetrace.cli.compare_limit import Limit
from tests.builders import build_run, build_run_from_text, launches_from_text, small_table

Out = pytest.CaptureFixture[str]
STEPS = 10
LAUNCHES = 2
BLOCKS = 2


def text_of(norm: int, wait: int, seed: int, steps: int = STEPS, kind: str = "sliding") -> str:
    """Steps of two launches; each block waits, then computes; lengths differ by 10 ns at most."""
    rng = random.Random(seed)
    lines = []
    for step in range(steps):
        for launch in range(LAUNCHES):
            begin = 1_000_000 * (step + 1) + 100_000 * launch
            for block in range(BLOCKS):
                middle = begin + wait + rng.randint(-10, 10)
                end = middle + norm + rng.randint(-10, 10)
                where = f"r0 s{step} l{launch} layer={launch} {kind} b{block}"
                lines += [f"{where} w1 gemm_wait {begin} {middle}", f"{where} w1 norm {middle} {end}"]
    return "\n".join(lines)


def build(folder: Path, norm: int = 20_000, wait: int = 8000, seed: int = 0, **options: Any) -> Path:
    kind, steps = options.pop("kind", "sliding"), options.pop("steps", STEPS)
    text = text_of(norm, wait, seed, steps, kind)
    return build_run_from_text(folder, text, small_table(), blocks=BLOCKS, **options)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with run ``a``, its like ``again``, and ``b``, in which norm takes 10 % longer."""
    monkeypatch.chdir(tmp_path)
    build(tmp_path / "a", seed=1)
    build(tmp_path / "again", seed=2)
    build(tmp_path / "b", norm=22_000, seed=3)
    return tmp_path


def compare(capsys: Out, *options: str, code: int = 0) -> str:
    assert main(["compare", *options]) == code
    return capsys.readouterr().out


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
        r"sliding: (\S+) us per block and launch that norm saved turned into waiting: (\S+)", page
    )
    assert sentence is not None
    assert [float(number) for number in sentence.groups()] == pytest.approx([4.0, 4.0], abs=0.02)


@pytest.mark.parametrize(
    ("runs", "limit", "code"),
    [(("a", "b"), "2%", 3), (("a", "b"), "9", 3), (("a", "b"), "11%", 0), (("b", "a"), "0%", 0)],
)
def test_the_exit_code_is_3_where_something_is_slower_by_more_than_the_limit(
    here: Path, capsys: Out, runs: tuple[str, str], limit: str, code: int
) -> None:
    document = json.loads(compare(capsys, *runs, "--json", "--fail-over", limit, code=code))
    failures = [tuple(name) for name in document["failures"]]
    assert (("sliding", "norm", "compute") in failures) == (code == 3)


def test_a_limit_is_passed_by_the_whole_interval_and_not_by_its_middle() -> None:
    row = {"verdict": "slower", "a_ns": 1000, "difference_ns": 40, "low_ns": 20, "high_ns": 60}
    assert not Limit(0.02).is_passed(row)
    assert Limit(0.02).is_passed({**row, "low_ns": 21})
    assert not Limit(0.02).is_passed({**row, "low_ns": 21, "verdict": "cannot tell"})


def test_two_recordings_of_one_program_pass_a_limit_of_nothing(here: Path, capsys: Out) -> None:
    assert "nothing is slower by more than 0.0 % for certain" in compare(
        capsys, "a", "again", "--fail-over", "0%", "--width", "200"
    )


def test_a_longer_wait_alone_does_not_fail_but_the_launch_that_it_is_in_does(here: Path, capsys: Out) -> None:
    build(here / "c", wait=12_000, seed=4)
    document = json.loads(compare(capsys, "a", "c", "--json", "--fail-over", "2%", code=3))
    failures = [tuple(name) for name in document["failures"]]
    assert ("launch", "sliding") in failures
    assert [name for name in failures if len(name) == 3] == []


def test_an_incomplete_run_is_compared_and_the_exit_code_is_3(here: Path, capsys: Out) -> None:
    build(here / "killed", seed=5, end=False)
    page = compare(capsys, "a", "killed", code=3)
    assert "killed is incomplete" in page


def test_junit_is_read_back_with_the_failure_and_what_cannot_be_told(here: Path, capsys: Out) -> None:
    compare(capsys, "a", "b", "--fail-over", "2%", "--junit", "out.xml", code=3)
    suite = ElementTree.parse(here / "out.xml").getroot()
    cases = {(case.get("classname"), case.get("name")): case for case in suite.iter("testcase")}
    assert int(suite.get("tests", "0")) == len(cases)
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    # The step, of 128 us with the gap in it, is 1.6 % slower.
    assert failed == {("sliding", "norm compute"), ("launch", "sliding")}
    assert ("step", "device") in cases
    assert int(suite.get("failures", "0")) == len(failed)
    message = cases["sliding", "norm compute"].find("failure")
    assert message is not None
    assert re.match(r"slower: \d+ ns in A, \d+ ns in B, \+\d+ ns \(\d+\.\d %\)", message.get("message", ""))
    skipped = {name for name, case in cases.items() if case.find("skipped") is not None}
    assert skipped == {("step", "host")}  # the tick of the host's clock is not known
    assert ("sliding", "gemm wait") not in cases


def test_names_with_marks_come_through_junit_and_markdown(here: Path, capsys: Out) -> None:
    table = small_table()
    launches = launches_from_text(text_of(20_000, 8000, 1), table, BLOCKS)
    data = table.to_json()
    data["jobs"][2]["op"] = "<b>|`x`\x1b&\u202e"
    odd = type(table).from_json(data)
    for name in ("odd_a", "odd_b"):
        build_run(here / name, launches, odd, BLOCKS)
    options = ("--fail-over", "1%", "--junit", "out.xml", "--md", "out.md", "--width", "200")
    page = compare(capsys, "odd_a", "odd_b", *options)
    assert "\x1b" not in page
    names = {case.get("name") for case in ElementTree.parse(here / "out.xml").getroot().iter("testcase")}
    assert "<b>|`x`\\x1b&\\u202e compute" in names
    build(here / "other", kind="sliding", seed=3)
    compare(capsys, "odd_a", "other", "--md", "out.md")
    text = (here / "out.md").read_text(encoding="utf-8")
    assert "only in A: sliding \\<b\\>\\|\\`x\\`\\\\x1b\\&\\\\u202e compute" in text


def test_markdown_is_tables_whose_cells_read_back(here: Path, capsys: Out) -> None:
    document = json.loads(compare(capsys, "a", "b", "--json", "--fail-over", "2%", "--md", "out.md", code=3))
    text = (here / "out.md").read_text(encoding="utf-8")
    assert text.startswith("## musetrace compare: b against a\n\n**slower by more than 2.0 % for certain: ")
    tables: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("| "):
            tables[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif tables[-1]:
            tables.append([])
    times, ops = (table for table in tables if table)
    for table in (times, ops):
        assert {len(row) for row in table} == {len(table[0])}
        assert set("".join(table[1])) <= set("-: ")
    assert [row[:2] for row in times[2:]] == [[row["what"], row["of"]] for row in document["times"]]
    (row,) = ops[2:]
    told = document["ops"][0]
    assert row[:3] == ["sliding", "norm", "compute"]
    assert [float(row[3]), float(row[4])] == pytest.approx(
        [told["a_ns"] / 1000, told["b_ns"] / 1000], abs=0.006
    )
    assert row[-1] == "slower"


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
