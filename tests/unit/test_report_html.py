"""The report as one HTML file: complete, small, harmless whatever names say; one line without plotly."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly")

from musetrace import analysis
from musetrace.cli import main
from musetrace.store import open_run
from tests.unit.decode_step_run import build_decode_steps
from tests.unit.hostile_run import IMAGE, NAMES, SCRIPT, build_hostile_run

RECORDING = Path(__file__).resolve().parents[2] / "samples" / "recordings" / "slice-h200"
MOST_BYTES = 6_000_000
Out = pytest.CaptureFixture[str]


class Page(HTMLParser):
    """Tags with attributes, and the texts of a page; what scripts and styles hold is kept apart."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def html_of(run: Path, file: Path, capsys: Out, *options: str) -> Page:
    assert main(["report", str(run), "--html", str(file), *options]) == 0
    capsys.readouterr()
    assert file.stat().st_size <= MOST_BYTES
    return Page(file.read_text(encoding="utf-8"))


def figures_of(page: Page) -> dict[str, Any]:
    return {entry["id"]: entry for entry in json.loads(page.scripts[0])["figures"]}


def test_the_recording_of_an_h200_is_one_small_file(tmp_path: Path, capsys: Out) -> None:
    run = shutil.copytree(RECORDING, tmp_path / "run")
    page = html_of(run, tmp_path / "report.html", capsys)
    assert list(figures_of(page)) == [
        "figure-causes",
        "figure-launch",
        *(f"figure-timeline-{number}" for number in range(4)),
        "figure-path",
    ]
    assert "unpooler waits for stop4_combine of its rank" in page.text
    # Nothing is fetched: no element names another file.
    named = {
        value
        for tag, attrs in page.tags
        for name, value in attrs.items()
        if name in ("src", "href", "srcset")
    }
    assert all(value and value.startswith("#") for value in named)
    sections = {attrs.get("id") for tag, attrs in page.tags if tag == "section"}
    assert {value.removeprefix("#") for value in named if value} <= sections


def test_figures_hold_the_answers(tmp_path: Path, capsys: Out) -> None:
    folder = build_decode_steps(tmp_path / "run")
    page = html_of(folder, tmp_path / "report.html", capsys)
    causes = figures_of(page)["figure-causes"]["figure"]
    rows = [row for row in analysis.findings(open_run(folder)).to_pylist() if row["finding"] == "idle_cause"][
        :12
    ]
    bars = [trace for trace in causes["data"] if trace["type"] == "bar"]
    assert [trace["x"] for trace in bars] == [[row["per_step_ns"] / 1000] for row in rows]
    launch = figures_of(page)["figure-launch"]["figure"]["data"]
    assert {trace["name"] for trace in launch} >= {"wait", "load", "compute"}
    # The path of that launch, from its begin to its end without a hole.
    path = figures_of(page)["figure-path"]["figure"]["data"]
    stretches = sorted(
        (begin, length) for trace in path if trace["type"] == "bar" for begin, length in pairs_of(trace)
    )
    assert stretches[0][0] == 0
    for (begin, length), (following, _) in zip(stretches, stretches[1:], strict=False):
        assert begin + length == pytest.approx(following)


def pairs_of(trace: dict[str, Any]) -> list[tuple[float, float]]:
    return list(zip(trace["base"], trace["x"], strict=True))


def test_the_dark_figure_differs_in_colours_alone(tmp_path: Path, capsys: Out) -> None:
    build_decode_steps(tmp_path / "run", kinds=("sliding",))
    page = html_of(tmp_path / "run", tmp_path / "report.html", capsys)
    for entry in figures_of(page).values():
        assert entry["dark"]
        for path, value in entry["dark"]:
            at = entry["figure"]
            for key in path:
                at = at[key]
            assert re.match(r"#[0-9a-f]{6}$", value) or all(re.match(r"#[0-9a-f]{6}$", one) for one in value)
            assert at != value


def test_only_its_own_scripts_may_run_and_nothing_may_be_asked_for(tmp_path: Path, capsys: Out) -> None:
    page = html_of(build_hostile_run(tmp_path / "run"), tmp_path / "report.html", capsys)
    policies = [
        attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    (policy,) = policies
    assert policy is not None
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert "connect-src" not in rules
    data, *code = page.scripts
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in code]
    assert rules["script-src"] == [f"'sha256-{one}'" for one in hashes]
    assert json.loads(data)


def test_hostile_names_are_shown_literally(tmp_path: Path, capsys: Out) -> None:
    page = html_of(build_hostile_run(tmp_path / "run"), tmp_path / "report.html", capsys)
    assert {tag for tag, _ in page.tags} & {"img", "a b", "iframe"} == set()
    assert len(page.scripts) == 3
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    for name in NAMES:
        assert " ".join(name.replace("\n", "\\x0a").split()) in page.text.replace("\xa0", " "), name
    ticks = figures_of(page)["figure-timeline-0"]["figure"]["layout"]["yaxis"]["ticktext"]
    assert not [text for text in ticks if re.search(r"<(?!/?b>)", text)]
    assert IMAGE not in page.scripts[0]
    assert SCRIPT not in page.scripts[0]


def test_a_run_without_stamps_has_a_page(tmp_path: Path, capsys: Out) -> None:
    from tests.builders import JournalBuilder
    from tests.unit.decode_step_run import job_table

    builder = JournalBuilder(tmp_path / "run", job_table(), 4, slot_bytes=0)
    builder.step(0, begin_ns=1_000, end_ns=8_000)
    builder.end()
    page = html_of(tmp_path / "run", tmp_path / "report.html", capsys)
    assert "no launch left a stamp" in page.text
    assert figures_of(page) == {}


def test_without_plotly_one_line_names_the_extra(
    tmp_path: Path, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_decode_steps(tmp_path / "run", kinds=("sliding",))
    for name in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert main(["report", str(tmp_path / "run"), "--html", str(tmp_path / "report.html")]) == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"musetrace: --html needs the package plotly[\w.]*: pip install 'musetrace\[dashboard\]', "
        r"or leave --html out\n",
        said,
    )
    assert not (tmp_path / "report.html").exists()


def test_a_file_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path, capsys: Out) -> None:
    assert main(["report", str(tmp_path / "no-run"), "--html", str(tmp_path / "no" / "x.html")]) == 2
    assert "its folder does not exist; make it first" in capsys.readouterr().err
