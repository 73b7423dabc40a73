"""Skew between ranks in two runs: against a slow oracle, planted differences, and what is printed of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from musetrace import analysis
from musetrace.analysis.comparing.skew_series import skew_series
from musetrace.cli import main
from tests.clock_runs import PEER, build_run_of_two_clocks
from tests.unit import analysis_oracle as oracle
from tests.unit.analysis_traces import runs
from tests.unit.compare_oracle import middle, over_ranks
from tests.unit.fake_run import FakeRun, Launch, Span
from tests.unit.planted_run import LENGTHS, planted

SEND = 7  # b_send, which stop1_wait_ranks awaits

Leads = dict[int, dict[int, list[int]]]  # by step and rank


def leads_of(run: FakeRun, kind: str) -> tuple[Leads, Counter[int], int, int]:
    """How long ranks are before the last one; who was last for certain, in how many launches, and ties."""
    launches, spans, _ = oracle.in_scope(run, kind, None, None)
    sent: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for x in spans:
        if x.job == SEND:
            of = sent[x.step, x.launch]
            of[x.rank] = max(of.get(x.rank, 0), run.base_ns(x.rank, x.step) + x.begin + x.dur)
    leads: Leads = defaultdict(lambda: defaultdict(list))
    last, judged, tied = Counter[int](), 0, 0
    for (step, _), by_rank in sent.items():
        if set(by_rank) != set(run.ranks):
            continue
        at = {rank: oracle.aligned(run, rank, end) for rank, end in by_rank.items()}
        for rank, end in at.items():
            leads[step][rank].append(max(at.values()) - end)
        if run.tick_ns is None:
            continue
        judged += 1
        late = [
            one
            for one in at
            if all(at[other] - at[one] < run.tick_ns + oracle.clocks_apart(run, one, other) for other in at)
        ]
        last.update(late if len(late) == 1 else [])
        tied += len(late) > 1
    return leads, last, judged, tied


@given(runs())
@settings(max_examples=60, deadline=None)
def test_the_numbers_of_steps_and_who_was_last_are_the_oracles(run: FakeRun) -> None:
    found = skew_series(run, run.ranks, None)
    told = len(run.ranks) > 1 and not run.missing and not oracle.not_aligned(run)
    kinds = {x.kind for x in run.all_launches} if told else set()
    expected = {(kind, "stop1"): leads_of(run, kind) for kind in kinds}
    assert set(found.leads.names) == {name for name, (leads, *_) in expected.items() if leads}
    for name, series in found.leads.names.items():
        leads, last, judged, tied = expected[name]
        assert series.step_ns.tolist() == [over_ranks(leads[step]) for step in sorted(leads)]
        for rank in run.ranks:
            of_rank = found.leads.by_rank[rank, name].step_ns.tolist()
            assert of_rank == [middle(leads[step][rank]) for step in sorted(leads)]
        who = found.lasts[name]
        if run.tick_ns is None:
            assert (series.uncertainty_ns, who.rank, who.share, who.tied_share) == (None, None, None, None)
            continue
        assert series.uncertainty_ns == run.tick_ns + (analysis.alignment_error_ns(run) or 0)
        assert who.tied_share == pytest.approx(tied / judged)
        assert who.share == pytest.approx(max(last.values(), default=0) / judged)
        assert who.rank is None if not last else last[who.rank or 0] == max(last.values())
    of_some = skew_series(run, run.ranks[:2], None)
    assert of_some.lasts == {name: found.lasts[name] for name in of_some.leads.names}


def two_ranks(seed: int, late: int, **more: Any) -> FakeRun:
    """Twelve steps in which rank 1's work before the stop takes so much longer."""
    ranks = [planted(seed=seed + rank, ranks=(rank,), **LENGTHS) for rank in (0, 1)]
    ranks[1] = planted(seed=seed + 1, ranks=(1,), **{**LENGTHS, "b_send": LENGTHS["b_send"] + late})
    launches: list[Launch] = [one for of in ranks for one in of.all_launches]
    spans: list[Span] = [one for of in ranks for one in of.all_spans]
    return FakeRun(launches, spans, 2, (0, 1), **more)


def test_a_rank_that_became_late_costs_the_other_as_much_and_is_named() -> None:
    found = analysis.compare(two_ranks(1, 0), two_ranks(5, 4000))
    (row,) = found.skew.to_pylist()
    assert (row["stop"], row["verdict"], row["most_rank"]) == ("stop1", "slower", 0)
    assert row["most_difference_ns"] == pytest.approx(4000, rel=0.1)
    assert row["difference_ns"] == pytest.approx(2000, rel=0.1)
    assert (row["last_rank_b"], row["last_share_b"], row["tied_share_b"]) == (1, 1.0, 0.0)


@pytest.mark.parametrize("error_ns", [500, 5_000])
def test_within_the_error_of_the_clocks_nothing_is_told(error_ns: int) -> None:
    alignment = {
        rank: {
            "clock": rank,
            "method": "peer_ping_pong",
            "offset_ns": 0,
            "error_ns": rank * error_ns,
            "measured_at_ns": [0],
            "offsets_ns": [0],
        }
        for rank in (0, 1)
    }
    a, b = (two_ranks(seed, late, alignment=alignment) for seed, late in ((1, 0), (5, 4000)))
    (row,) = analysis.compare(a, b).skew.to_pylist()
    assert row["uncertainty_ns"] == 2 * (1 + error_ns)
    assert (row["verdict"] == "slower") == (error_ns == 500)
    assert row["last_rank_b"] == (1 if error_ns == 500 else None)
    assert row["tied_share_b"] == (0.0 if error_ns == 500 else 1.0)
    lost = {rank: {**told, "error_ns": None if rank else 0} for rank, told in alignment.items()}
    assert analysis.compare(replace(a, alignment=lost), b).skew.num_rows == 0


def test_one_rank_and_a_missing_rank_have_no_skew() -> None:
    alone = planted(seed=1, ranks=(0,), **LENGTHS)
    assert analysis.compare(alone, alone).skew.num_rows == 0
    lacking = two_ranks(1, 0, missing=(2,))
    assert analysis.compare(lacking, lacking).skew.num_rows == 0


def test_the_page_has_every_stop_with_who_was_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = (str(build_run_of_two_clocks(tmp_path / name, {"peer": PEER})) for name in "ab")
    assert main(["compare", a, b, "--width", "130"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("stops: how long a rank is"))
    table = [line.split() for line in lines[at:]]
    (row,) = (words for words in table if words[:2] == ["sliding", "stop1"])
    # Of ranks 0, 1, 2 the medians over two launches are 7, 0 and 0 us: 2.33 on average. Of each run the
    # clocks leave 32 + 604 ns open.
    assert row[2:5] == ["2.33", "2.33", "<1.28"]
    assert row[-8:] == ["r1", "50", "%", "r1", "50", "%", "cannot", "tell"]
    assert main(["compare", a, b, "--json"]) == 0
    assert '"last_share_a": 0.5' in capsys.readouterr().out
    assert main(["compare", a, b, "--md", "-"]) == 0
    assert "| sliding | stop1 | r1 50 % | r1 50 % | 2.33 |" in capsys.readouterr().out
