"""The report as Markdown: the same statements, in tables that hold whatever names say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from musetrace.cli import main
from musetrace.cli.markdown import fenced, paragraph, plain_text
from tests.unit.decode_step_run import build_decode_steps
from tests.unit.hostile_run import IMAGE, SCRIPT, build_hostile_run

Out = pytest.CaptureFixture[str]


def cells_of(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)


def outside_fences(text: str) -> list[str]:
    found, fence = [], ""
    for line in text.splitlines():
        ticks = re.match(r"`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif ticks:
            fence = ticks[0]
        else:
            found.append(line)
    assert fence == ""
    return found


def test_the_file_says_what_the_text_says(tmp_path: Path, capsys: Out) -> None:
    build_decode_steps(tmp_path / "run")
    file = tmp_path / "report.md"
    assert main(["report", str(tmp_path / "run"), "--md", str(file), "--width", "200"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    markdown = file.read_text(encoding="utf-8")
    assert main(["report", str(tmp_path / "run"), "--md"]) == 0
    assert capsys.readouterr().out == markdown
    for title in re.findall(r"^## (.*)$", markdown, re.MULTILINE):
        assert title.replace("\\", "") in text
    items = re.findall(r"^- \*\*(\d+[.=]) (.*)\*\*$", markdown, re.MULTILINE)
    assert len(items) == 5
    for mark, headline in items:
        assert f"{mark} " + headline.replace("\\", "") in text


def test_tables_are_tables_and_charts_are_text(tmp_path: Path, capsys: Out) -> None:
    build_decode_steps(tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--md"]) == 0
    markdown = capsys.readouterr().out
    table: list[int] = []
    for line in [*outside_fences(markdown), ""]:
        if line.startswith("|"):
            table.append(len(cells_of(line)))
        elif table:
            assert len(table) >= 3
            assert len(set(table)) == 1
            table = []
    assert "| step | n | us p10 | us p50 | us p90 | us mean | ± ns |" in markdown
    assert re.search(r"^attention +compute .*█", markdown, re.MULTILINE)


def test_hostile_names_are_shown_literally(tmp_path: Path, capsys: Out) -> None:
    folder = build_hostile_run(tmp_path / "run")
    assert main(["report", str(folder), "--md"]) == 0
    markdown = capsys.readouterr().out
    free = "\n".join(outside_fences(markdown))
    assert plain_text(IMAGE) in free
    assert plain_text(SCRIPT) in free
    # No mark of HTML, a link, code or emphasis that is not escaped, but for what the renderer writes itself.
    own = re.sub(r"^(\s*- |#+ |\| --- .*\|$|\|( ---:? \|)+$)", "", free, flags=re.MULTILINE)
    own = re.sub(r"^\*\*(.*)\*\*( |$)", r"\1 ", own, flags=re.MULTILINE)
    assert re.findall(r"(?<!\\)[<>`\[\]*_~&]", own) == []
    for line in outside_fences(markdown):
        if line.startswith("| ") and "---" not in line:
            assert len(cells_of(line)) >= 4
    assert "# four" not in [line.strip() for line in markdown.splitlines()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. not a list", r"1\. not a list"),
        ("12) nor this", r"12\) nor this"),
        ("- nor this", r"\- nor this"),
        ("=== nor a heading", r"\=== nor a heading"),
        ("# nor this", r"\# nor this"),
        ("1.5 us a step", r"1\.5 us a step"),
        ("a - b. c", "a - b. c"),
    ],
)
def test_a_paragraph_opens_nothing(text: str, expected: str) -> None:
    assert paragraph(text) == expected


def test_a_fence_is_longer_than_any_in_it() -> None:
    assert fenced(["a", "````", "b ```"]) == "`````text\na\n````\nb ```\n`````"


def test_json_and_markdown_cannot_both_go_to_stdout(tmp_path: Path, capsys: Out) -> None:
    build_decode_steps(tmp_path / "run", kinds=("sliding",))
    assert main(["report", str(tmp_path / "run"), "--json", "--md"]) == 2
    assert capsys.readouterr().err == "musetrace: --json and --md both print to stdout: give --md a FILE\n"
    assert main(["report", str(tmp_path / "run"), "--md", str(tmp_path / "no" / "x.md")]) == 2
    assert "its folder does not exist; make it first" in capsys.readouterr().err
