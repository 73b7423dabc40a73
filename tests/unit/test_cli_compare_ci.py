"""``musetrace compare`` as a CI uses it: limits, exit codes, JUnit XML and Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from musetrace.analysis.comparing.difference import Rule, difference
from musetrace.analysis.comparing.step_series import Series
from musetrace.cli import main
from musetrace.cli.compare.limit import Limit
from tests.builders import build_run, launches_from_text, small_table
from tests.unit.compared_runs import BLOCKS, build, compare, text_of

Out = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with run ``a``, its like ``again``, and ``b``, in which norm takes 10 % longer."""
    monkeypatch.chdir(tmp_path)
    build(tmp_path / "a", seed=1)
    build(tmp_path / "again", seed=2)
    build(tmp_path / "b", norm=22_000, seed=3)
    return tmp_path


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
    row = {"verdict": "slower", "a_ns": 1000, "difference_ns": 40, "low_ns": 30, "certain_low_ns": 20}
    assert not Limit(0.02).is_passed(row)
    assert Limit(0.02).is_passed({**row, "certain_low_ns": 21})
    assert not Limit(0.02).is_passed({**row, "certain_low_ns": 21, "verdict": "cannot tell"})
    assert not Limit(0.02).is_passed({**row, "certain_low_ns": None})  # too few steps


def test_of_few_steps_nothing_passes_a_limit_which_is_said(here: Path, capsys: Out) -> None:
    # Eight rows: 1 - 0.05 / 8 is more than the 1 - 2^(1 - n) that n steps give up to n = 8.
    for steps, code in ((8, 0), (9, 3)):
        build(here / f"few{steps}", seed=4, steps=steps)
        build(here / f"slow{steps}", norm=22_000, seed=5, steps=steps)
        runs = (f"few{steps}", f"slow{steps}")
        page = compare(capsys, *runs, "--fail-over", "2%", "--width", "200", code=code)
        assert ("(of 8 rows none can be, with fewer than 9 steps)" in page) == (code == 0)
        rows = json.loads(compare(capsys, *runs, "--json"))["ops"]
        assert rows[0]["verdict"] == "slower"
        assert (rows[0]["certain_low_ns"] is None) == (code == 0)


@pytest.mark.parametrize("seed", range(5))
def test_of_many_noisy_ops_none_passes_a_limit_by_chance(seed: int) -> None:
    """Two hundred ops whose lengths are chance alone: some tell a difference, none for certain."""
    rng = np.random.default_rng(seed)
    runs = rng.integers(1000, 1200, size=(2, 200, 20))
    rows = [
        difference(*(Series(of, 1, 1, 20) for of in op), Rule(family=200)) for op in zip(*runs, strict=True)
    ]
    assert any(row["verdict"] in ("slower", "faster") for row in rows)
    assert not any(Limit(0.0).is_passed(row) for row in rows)


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


# What Jenkins' junit-10.xsd lets an element have, and what readers look for.
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "disabled", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "testcase": {"classname", "name", "time"},
    "failure": {"type", "message"},
    "skipped": {"message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase", "system-out"},
    "testcase": {"failure", "skipped"},
}


def checked_suite(file: Path) -> ElementTree.Element:
    """The suite of a file that a strict reader takes, whose counts are those of its cases."""
    root = ElementTree.fromstring(file.read_bytes())
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.keys()) <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        if element.tag in ("testsuite", "testcase"):
            assert ATTRIBUTES[element.tag] - {"timestamp"} <= set(element.keys())
    (suite,) = root
    cases = list(suite.iter("testcase"))
    assert int(suite.get("tests", "")) == len(cases)
    for count, tag in (("failures", "failure"), ("skipped", "skipped")):
        assert int(suite.get(count, "")) == sum(case.find(tag) is not None for case in cases)
    times = [float(case.get("time", "")) for case in cases]
    assert float(suite.get("time", "")) == pytest.approx(sum(times), abs=1e-8)
    assert (root.get("tests"), root.get("failures")) == (suite.get("tests"), suite.get("failures"))
    return suite


def test_junit_is_read_back_with_the_failure_and_what_cannot_be_told(here: Path, capsys: Out) -> None:
    compare(capsys, "a", "b", "--fail-over", "2%", "--junit", "out.xml", code=3)
    suite = checked_suite(here / "out.xml")
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
    times, ops, parts = (table for table in tables if table)
    for table in (times, ops, parts):
        assert {len(row) for row in table} == {len(table[0])}
        assert set("".join(table[1])) <= set("-: ")
    of_launches = [row for row in document["times"] if row["what"] not in ("busy", "idle")]
    assert [row[:2] for row in times[2:]] == [[row["what"], row["of"]] for row in of_launches]
    (row,) = ops[2:]
    told = document["ops"][0]
    assert row[:3] == ["sliding", "norm", "compute"]
    assert [float(row[3]), float(row[4])] == pytest.approx(
        [told["a_ns"] / 1000, told["b_ns"] / 1000], abs=0.006
    )
    assert row[-1] == "slower"
    assert [(row[1], row[2], row[-1]) for row in parts[2:]] == [
        ("all ops", "(busy)", "slower"),
        ("all causes", "(idle)", "same"),
        ("norm", "(busy)", "slower"),
    ]


def digests(unlike: int | None = None) -> Callable[[int], str]:
    """The same hash in each step, another one from step ``unlike`` on."""
    return lambda step: "ab" if unlike is None or step < unlike else "cd"


@pytest.mark.parametrize(
    ("output", "said", "code"),
    [
        (digests(), "equal bit for bit in 10 of 10 steps", 0),
        (digests(7), "differ in 3 of 10 steps, first in step 7", 3),
        (None, "not kept in B", 3),
    ],
)
def test_outputs_that_must_be_equal_are_a_test_of_their_own(
    here: Path, capsys: Out, output: Callable[[int], str] | None, said: str, code: int
) -> None:
    build(here / "with", seed=4, output=digests())
    build(here / "other", seed=5, output=output)
    options = ("--same-outputs", "--junit", "out.xml", "--md", "out.md", "--width", "200")
    page = compare(capsys, "with", "other", *options, code=code)
    assert f"\noutputs  {said}\n" in page
    assert f"outputs must be equal: {said}" in page
    assert f"- outputs {said}\n" in (here / "out.md").read_text(encoding="utf-8")
    (case,) = checked_suite(here / "out.xml").iter("testcase")
    assert (case.get("classname"), case.find("failure") is not None) == ("outputs", code == 3)
    # Without the option it is said all the same, and fails nothing.
    document = json.loads(compare(capsys, "with", "other", "--json", "--fail-over", "50%"))
    assert (document["same_outputs"], document["failures"]) == (False, [])
    assert document["outputs"]["equal"] == {0: 10, 3: 7}[code] * (output is not None)


def test_a_test_case_takes_as_long_as_in_run_b_and_the_suite_is_of_its_day(here: Path, capsys: Out) -> None:
    build(here / "c", seed=6, meta={"recorded_at": "2026-02-03T04:05:06+00:00"})
    compare(capsys, "a", "c", "--fail-over", "2%", "--junit", "out.xml")
    suite = checked_suite(here / "out.xml")
    cases = {case.get("name"): float(case.get("time", "")) for case in suite.iter("testcase")}
    assert cases["norm compute"] == pytest.approx(20e-6, abs=0.1e-6)
    assert suite.get("timestamp") == "2026-02-03T04:05:06+00:00"
    build(here / "d", seed=7, meta={"recorded_at": "yesterday"})
    compare(capsys, "a", "d", "--fail-over", "2%", "--junit", "out.xml")
    assert checked_suite(here / "out.xml").get("timestamp") is None


def test_markdown_instead_of_the_page_is_what_the_file_would_have(here: Path, capsys: Out) -> None:
    printed = compare(capsys, "a", "b", "--md", "-", "--fail-over", "2%", code=3)
    compare(capsys, "a", "b", "--md", "out.md", "--fail-over", "2%", code=3)
    assert printed == (here / "out.md").read_text(encoding="utf-8")
    assert not (here / "-").exists()


def test_the_help_tells_the_exit_codes(capsys: Out) -> None:
    text = " ".join(compare(capsys, "--help").split())
    assert "exit codes: 0 compared, and no limit is passed; 3 a limit is passed, or a run is" in text


def test_stamps_off_is_compared_by_the_hosts_times_and_outputs(here: Path, capsys: Out) -> None:
    build(here / "on", seed=4, output=digests(), meta={"host_tick_ns": 1})
    build(here / "off", seed=5, output=digests(), stamps=False, meta={"host_tick_ns": 1})
    document = json.loads(compare(capsys, "on", "off", "--json"))
    times = {(row["what"], row["of"]): row for row in document["times"]}
    assert set(times) == {("step", "host"), ("host launch", "sliding")}
    # Wait and norm are 28 us; the launch begins 100 us behind the first one, which is the step's begin.
    assert times["host launch", "sliding"]["a_ns"] == pytest.approx(28_000, abs=50)
    assert times["step", "host"]["a_ns"] == pytest.approx(128_000, abs=50)
    assert {row["verdict"] for row in times.values()} == {"same"}
    assert document["ops"] == document["idle"] == document["busy"] == []
    assert document["observed"] == {"a": 1.0, "b": None}
    page = compare(capsys, "on", "off", "--width", "80")
    assert "warning  B has no spans: only times of steps and launches are compared" in page
    assert "warning  stamps: store in A, off in B" in page
    assert "\noutputs  equal bit for bit in 10 of 10 steps\n" in page
    # A build without stamps that is slower by more than 2 % passes the limit.
    build(here / "slow", norm=40_000, seed=6, stamps=False, meta={"host_tick_ns": 1})
    failed = json.loads(compare(capsys, "on", "slow", "--json", "--fail-over", "2%", code=3))["failures"]
    assert failed == [["step", "host"], ["host launch", "sliding"]]


def test_lost_launches_are_said_with_the_share_that_is_left(here: Path, capsys: Out) -> None:
    build(here / "lossy", seed=4, loses=5)
    options = ("--md", "out.md", "--fail-over", "2%", "--junit", "out.xml")
    page = compare(capsys, "a", "lossy", "--width", "200", *options)
    # 20 launches of 25 were kept.
    assert "\nobserved 80.0 % of B at least: the numbers are of that part\n" in page
    assert "\nwarning  B lost lost_launches 5\n" in page
    text = (here / "out.md").read_text(encoding="utf-8")
    assert "- 80.0 % of B at least: the numbers are of that part\n" in text
    assert json.loads(compare(capsys, "a", "lossy", "--json"))["observed"] == {"a": 1.0, "b": 0.8}


@pytest.mark.parametrize("damage", [b"", b"not a journal", b"\0" * 4096])
def test_a_run_that_is_damaged_beyond_reading_is_refused(here: Path, capsys: Out, damage: bytes) -> None:
    build(here / "broken", seed=4)
    (here / "broken" / "rank-0000.mtj").write_bytes(damage)
    assert main(["compare", "a", "broken", "--fail-over", "2%", "--junit", "out.xml"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "broken" in err
    assert not (here / "out.xml").exists()
