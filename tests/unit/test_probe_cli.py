"""``musetrace probe``: what it prints and refuses, on this CPU and on a GPU that is none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from musetrace import _core
from musetrace.cli import main
from musetrace.cli.probe_page import number
from musetrace.cli.text import cells
from musetrace.probe.document import document, merged
from musetrace.probe.experiments import EXPERIMENTS
from musetrace.probe.facts import Fact, Outcome
from musetrace.record.cpu_kernel_device import cpu_name
from tests.unit.fake_probe import FakeProbe, install

Out = pytest.CaptureFixture[str]

FACT_TYPES = {
    "name": str,
    "unit": str,
    "n": int,
    "median": (int, float),
    "p10": (int, float),
    "p90": (int, float),
    "note": str,
    "case": str,
    "at": (int, float, type(None)),
    "at_unit": str,
}


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> FakeProbe:
    return install(monkeypatch)


def printed(capsys: Out, *argv: str, code: int = 0) -> str:
    assert main(["probe", *argv]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: Out, *argv: str, code: int = 1) -> str:
    """The one line of a refusal; nothing was measured."""
    assert main(["probe", *argv]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("musetrace: ")
    assert err.count("\n") == 1
    return err.removeprefix("musetrace: ").rstrip("\n")


def check_schema(probed: dict[str, Any], kind: str) -> None:
    assert list(probed) == ["musetrace", "measured_at", "device", "complete", "experiments"]
    assert probed["device"]["kind"] == kind
    assert [entry["name"] for entry in probed["experiments"]] == [one.name for one in EXPERIMENTS[kind]]
    for entry in probed["experiments"]:
        assert set(entry) == {"name", "title", "state", "why", "seconds", "measured_at", "notes", "facts"}
        assert entry["state"] in ("measured", "skipped", "failed")
        assert bool(entry["facts"]) == (entry["state"] == "measured") == (entry["why"] == "")
        labels = [(fact["name"], fact["case"], fact["at"]) for fact in entry["facts"]]
        assert len(set(labels)) == len(labels), "two facts cannot be told apart"
        for fact in entry["facts"]:
            assert {
                name: isinstance(fact[name], kinds) for name, kinds in FACT_TYPES.items()
            } == dict.fromkeys(FACT_TYPES, True)
            assert set(fact) == set(FACT_TYPES)
            assert fact["n"] >= 1
            assert fact["p10"] <= fact["median"] <= fact["p90"]


def test_this_cpu_is_measured(capsys: Out) -> None:
    probed = json.loads(printed(capsys, "--device", "cpu", "--quick", "--json"))
    check_schema(probed, "cpu")
    assert (probed["complete"], probed["device"]["name"]) == (True, cpu_name())
    by_name = {
        (entry["name"], fact["name"], fact["case"]): fact
        for entry in probed["experiments"]
        for fact in entry["facts"]
    }
    assert by_name["clock", "tick", ""]["median"] >= 1
    assert {case for experiment, _, case in by_name if experiment == "stamp_cost"} == {
        "off",
        "store",
        "register",
    }
    for key in (("clock", "read_cost", ""), ("stamp_cost", "stamp", "register"), ("hop", "one_way", "")):
        assert by_name[key]["median"] > 0
    # The Unix time of monotonic zero: after 2001, before 2100.
    assert 10**18 < by_name["unix_offset", "offset", ""]["median"] < 41 * 10**17


@pytest.mark.parametrize(
    "name", ["clock_reads", "clock_read_times", "stamp_times", "unix_brackets", "hop_times"]
)
def test_a_wrong_number_of_samples_is_refused(name: str) -> None:
    for samples in (0, 1 << 21):
        with pytest.raises(ValueError, match="choose 1 to 1048576 samples"):
            getattr(_core.probe, name)(samples)


def test_the_cpu_page_has_a_table_for_each_experiment(capsys: Out) -> None:
    page = printed(capsys, "--device", "cpu", "--quick", "--width", "80")
    for experiment in EXPERIMENTS["cpu"]:
        assert f"\n{experiment.name}: {experiment.title}\n" in page
    assert page.count("  fact ") == len(EXPERIMENTS["cpu"])
    # Nineteen digits, once: neither they nor what stands behind them is cut off.
    (offset,) = [line.split() for line in page.splitlines() if line.startswith("  offset ")]
    assert (offset[0], offset[1], offset[3:]) == ("offset", "=", ["=", "ns", "2,000"])
    assert len(offset[2]) == len("1,795,968,537,488,226,391")
    assert all(cells(line) <= 80 for line in page.splitlines())


def test_auto_takes_the_cpu_where_there_is_no_gpu(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    none = ModuleType("musetrace._cuda")
    none.__dict__.update(device_count=lambda: 0, probe=None)
    monkeypatch.setitem(sys.modules, "musetrace._cuda", none)
    probed = json.loads(printed(capsys, "--quick", "--only", "clock", "--json"))
    assert probed["device"]["kind"] == "cpu"
    line = refused(capsys, "--device", "cuda")
    assert line == "no CUDA device can be used; check the driver and nvidia-smi, or use --device cpu"


def test_a_build_without_cuda_and_an_old_build_say_so(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "musetrace._cuda", None)
    assert refused(capsys, "--device", "cuda").startswith(
        "this build has no CUDA part: musetrace._cuda cannot"
    )
    monkeypatch.setitem(sys.modules, "musetrace._cuda", ModuleType("musetrace._cuda"))
    assert refused(capsys, "--device", "cuda").startswith("the compiled CUDA part is older")


def test_auto_takes_a_gpu(capsys: Out, probe: FakeProbe) -> None:
    probed = json.loads(printed(capsys, "--quick", "--json"))
    check_schema(probed, "cuda")
    assert probed["complete"] is True
    assert [entry["name"] for entry in probed["experiments"] if entry["state"] == "skipped"] == ["peer"]


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("width", [60, 80, 140, 200])
def test_the_page_of_a_gpu_fits_every_width(capsys: Out, width: int) -> None:
    page = printed(capsys, "--quick", "--width", str(width))
    assert max(cells(line) for line in page.splitlines()) <= width
    assert "skipped: needs a second GPU" in page
    for experiment in EXPERIMENTS["cuda"]:
        assert f"\n{experiment.name}: " in page


@pytest.mark.usefixtures("probe")
def test_a_row_has_name_spread_unit_and_count(capsys: Out) -> None:
    page = printed(capsys, "--only", "barrier", "--width", "120")
    (row,) = [line.split() for line in page.splitlines() if line.startswith("  barrier")]
    assert row[:6] == ["barrier", "930.0", "930.0", "930.0", "ns", "1,024"]
    assert "over 4 blocks" in " ".join(row[6:])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (32, "32"),
        (1_795_968_537_488_226_391, "1,795,968,537,488,226,391"),
        (0.0, "0"),
        (0.05, "0.0500"),
        (4.5712, "4.571"),
        (-38.719, "-38.72"),
        (8156.2, "8,156"),
        (14566.4, "14,566"),
    ],
)
def test_numbers_have_four_digits_and_integers_all(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_failure_is_a_row_and_exit_code_3(capsys: Out, probe: FakeProbe) -> None:
    probe.broken["stamp_costs"] = RuntimeError("allocating device memory: out of memory")
    page = printed(capsys, "--quick", code=3)
    assert "\n  failed: allocating device memory: out of memory\n" in page
    assert page.endswith("\n1 failed: stamp_cost\n")
    probed = json.loads(printed(capsys, "--quick", "--json", code=3))
    check_schema(probed, "cuda")
    assert probed["complete"] is False


def test_the_list_measures_nothing(capsys: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "musetrace._cuda", None)
    page = printed(capsys, "--list", "--width", "120")
    for kind, there in EXPERIMENTS.items():
        assert f"\n{kind} " in f"\n{page}"
        assert all(f"\n{one.name} " in page and one.title in page for one in there)
    listed = json.loads(printed(capsys, "--list", "--json"))
    assert listed["experiments"]["cpu"]["hop"] == "how long a word takes from thread to thread"


@pytest.mark.parametrize("names", ["hop,nothing", "", "hop,", "stream"])
def test_an_unknown_experiment_is_a_usage_error(capsys: Out, names: str) -> None:
    line = refused(capsys, "--device", "cpu", "--only", names, code=2)
    assert "there are clock, unix_offset, stamp_cost, hop" in line


def test_a_plot_needs_a_gpu_plotly_and_a_place(
    capsys: Out, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, probe: FakeProbe
) -> None:
    page = str(tmp_path / "page.html")
    assert "draws the curves of a GPU" in refused(capsys, "--device", "cpu", "--plot", page, code=2)
    for place in (str(tmp_path / "none" / "page.html"), str(tmp_path)):
        assert refused(capsys, "--plot", place).startswith(f"cannot write {place}: name a file in a folder")
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    line = refused(capsys, "--plot", page)
    assert line.startswith("--plot needs the package plotly")
    assert line.endswith("pip install 'musetrace[dashboard]', or leave --plot out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("probe")
def test_the_plot_is_written_beside_the_facts(capsys: Out, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["probe", "--quick", "--json", "--plot", str(page)]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["complete"]
    assert err == f"the curves are in {page}\n"
    assert "<title>musetrace probe: NVIDIA H200</title>" in page.read_text()
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.usefixtures("probe")
def test_facts_are_read_from_a_file_as_they_were_printed(capsys: Out, tmp_path: Path) -> None:
    text = printed(capsys, "--quick", "--json")
    (tmp_path / "facts.json").write_text(text)
    again = printed(capsys, "--from", str(tmp_path / "facts.json"), "--json")
    assert json.loads(again) == json.loads(text)
    page = printed(capsys, "--from", str(tmp_path / "facts.json"), "--width", "120")
    assert "musetrace probe: NVIDIA H200\n" in page
    lines = page.splitlines()
    curve = lines.index("  one_way, Lamport slot")
    assert lines[curve + 1].startswith("    0 KiB in flight ")


@pytest.mark.parametrize("option", [["--only", "hop"], ["--quick"], ["--device", "cpu"]])
def test_what_says_how_to_measure_is_refused_beside_a_file(capsys: Out, option: list[str]) -> None:
    line = refused(capsys, "--from", "facts.json", *option, code=2)
    assert line.startswith(f"{option[0]} says how to measure")


GOOD = {
    "musetrace": "0.1.0",
    "measured_at": "2026-11-30T00:00:00+00:00",
    "device": {"kind": "cuda", "name": "NVIDIA \x1b[2J", "sms": 132, "nested": {"left": "out"}},
    "complete": True,
    "experiments": [
        {
            "name": "hop\u202e",
            "title": "a\nb",
            "state": "measured",
            "why": "",
            "seconds": 0.5,
            "measured_at": "2026-11-30T00:00:00+00:00",
            "notes": ["\x1b]0;x\x07"],
            "facts": [Fact("x\x1b[1m", "ns\r", 1, 2, 1, 3.5, note="\x1b[31m", case="\u202e").to_json()],
        }
    ],
}


def written(tmp_path: Path, data: Any) -> str:
    (tmp_path / "facts.json").write_text(data if isinstance(data, str) else json.dumps(data))
    return str(tmp_path / "facts.json")


def test_texts_from_a_file_do_not_steer_the_terminal(capsys: Out, tmp_path: Path) -> None:
    page = printed(capsys, "--from", written(tmp_path, GOOD))
    assert all(char.isprintable() for char in page.replace("\n", ""))
    assert "x\\x1b[1m" in page


def changed(place: str, value: Any) -> dict[str, Any]:
    """The good document with one thing in another state; ``place`` is a path of keys and numbers."""
    data: Any = json.loads(json.dumps(GOOD))
    *path, last = [int(word) if word.isdigit() else word for word in place.split(".")]
    inner = data
    for word in path:
        inner = inner[word]
    inner[last] = value
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("musetrace", 1),
        ("measured_at", None),
        ("device", []),
        ("device.kind", "tpu"),
        ("device.name", "x" * 1000),
        ("experiments", {}),
        ("experiments.0", 7),
        ("experiments.0.state", "done"),
        ("experiments.0.notes", [1]),
        ("experiments.0.facts", [[]]),
        ("experiments.0.facts.0.n", 0),
        ("experiments.0.facts.0.n", True),
        ("experiments.0.facts.0.median", "2"),
        ("experiments.0.facts.0.p90", 10**30),
        ("experiments.0.facts.0.at", "far"),
        ("experiments.0.facts.0.unit", None),
    ],
)
def test_a_file_of_something_else_is_refused(capsys: Out, tmp_path: Path, place: str, value: Any) -> None:
    path = written(tmp_path, changed(place, value))
    assert refused(capsys, "--from", path).startswith(f"{path} is not what musetrace probe --json prints: ")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"median": NaN}', "[" * 100_000])
def test_a_file_that_is_no_document_is_refused(capsys: Out, tmp_path: Path, text: str) -> None:
    assert "is not what musetrace probe --json prints" in refused(capsys, "--from", written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(capsys: Out, tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        assert refused(capsys, "--from", str(path)).startswith(f"cannot read {path}: ")


def test_an_incomplete_document_keeps_its_exit_code(capsys: Out, tmp_path: Path) -> None:
    path = written(tmp_path, changed("experiments.0.state", "failed"))
    assert printed(capsys, "--from", path, code=3).endswith("1 failed: hop\\u202e\n")


def test_documents_are_merged_by_experiment() -> None:
    def measured(name: str, median: int) -> Outcome:
        return Outcome(name, name, "measured", 1.0, [Fact("x", "ns", 1, median, median, median)])

    device = {"kind": "cpu", "name": "x"}
    earlier = document(
        device, [measured("a", 1), measured("b", 2), Outcome("c", "c", "failed", 1.0, why="!")]
    )
    later = document(device, [Outcome("a", "a", "failed", 1.0, why="!"), measured("b", 3), measured("c", 4)])
    together = merged(earlier, later)
    assert [(entry["name"], entry["facts"][0]["median"]) for entry in together["experiments"]] == [
        ("a", 1),
        ("b", 3),
        ("c", 4),
    ]
    assert together["complete"] is True
    assert (earlier["complete"], later["complete"]) == (False, False)
    assert merged(None, later) == later
    assert merged({"unreadable": "why"}, later) == later
