"""The article's table of a run whose every time is arithmetic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench import article_table
from tests.unit.decode_step_run import KINDS, SEND_LATE_NS, STEPS, build_decode_steps

US = {"median": 7202.25, "low": 7195.0, "high": 7220.0, "count": 20}


def test_it_has_what_the_run_and_the_benches_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    build_decode_steps(run)
    timing, chain, facts = (tmp_path / f"{name}.json" for name in ("timing", "chain", "facts"))
    base = "step, sumsq, off"
    told = {
        "us": {base: US},
        "more_than": base,
        "more_us": {"step, store": US},
        "one_stream": {"sumsq": True},
    }
    told["more_us_each"] = {"step, store, a launch": US}
    timing.write_text(json.dumps(told))
    chain.write_text(json.dumps({"layers": 62, "us": {"B3": US}}))
    files = ["--timing", str(timing), "--chain", str(chain), "--json", str(facts)]
    monkeypatch.setattr(sys, "argv", ["article_table", str(run), *files])
    article_table.main()
    rows = capsys.readouterr().out.splitlines()
    # Two ranks: rank 1 sends 0.9 us later at every stop, and a launch of three sliding ones is counted once.
    late = f"{SEND_LATE_NS / 1000:.2f}"
    stop1 = next(row for row in rows if row.startswith("| sliding stop1"))
    cells = [cell.strip() for cell in stop1.strip("|").split("|")]
    assert cells[1] == str(STEPS * KINDS.count("sliding"))
    assert cells[2:4] == [f"{SEND_LATE_NS / 2000:.2f}", late]
    assert cells[5] == "rank 1, 100%"
    step = next(row for row in rows if row.startswith("| step |"))
    assert step.startswith(f"| step | {2 * STEPS} | {len(KINDS)} |")
    assert any(row.startswith("| sliding |") and "%" in row for row in rows)
    assert "| step, sumsq, off | 7,202.2 | 7,195.0 to 7,220.0 | 20 |" in rows
    assert "| step, store, more than step, sumsq, off | 7,202.2 | 7,195.0 to 7,220.0 | 20 |" in rows
    assert "| the same, step, store, a launch | 7,202.2 | 7,195.0 to 7,220.0 | 20 |" in rows
    assert "| chain with programmatic launch, verify pass (B3) | 7,202.2 | 7,195.0 to 7,220.0 | 20 |" in rows
    kept = json.loads(facts.read_text())
    assert {row["rank"] for row in kept["stops"]["sliding"]} == {0, 1}
    assert kept["timing"] == told
    assert kept["chain"]["layers"] == 62


def test_what_was_not_measured_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build_decode_steps(tmp_path / "run")
    words = [str(tmp_path / "run"), "--timing", str(tmp_path / "none"), "--chain", str(tmp_path / "none")]
    monkeypatch.setattr(sys, "argv", ["article_table", *words])
    article_table.main()
    out = capsys.readouterr().out
    assert "stop5" in out
    assert "B3" not in out
    assert "sumsq" not in out
    assert "loopback" not in out
