"""The article's table and the numbers of its figure, from a recorded run: Markdown and JSON.

``python -m tests.bench.article_table RUN [--timing FILE] [--chain FILE] [--json FILE]``: ``--timing`` is the
JSON of ``whole_steps_bench`` and ``--chain`` that of ``layer_bench``, both of the same model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from musetrace import analysis
from musetrace.analysis.gaps.stops import stop_number
from musetrace.store import Run, open_run

LAYER_KINDS = ("sliding", "global")
LAST_EXPERT_OP = "gemm2"
CHAIN_NAMES = {
    "B0 sliding": "torch reference, eager, sums in fp64: a sliding layer (B0)",
    "B1": "chain as a graph, verify pass (B1)",
    "B3": "chain with programmatic launch, verify pass (B3)",
    "mega off": "megakernel, verify pass, stamps off",
    "mega register": "megakernel, verify pass, stamps register",
    "mega store": "megakernel, verify pass, stamps store",
}

Row = dict[str, Any]


def facts_of(run: Run) -> dict[str, Any]:
    """What the table is made of, as plain JSON types; times in ns."""
    launches = rows(analysis.launch_times(run))
    kinds = [kind for kind in LAYER_KINDS if kind in {row["kind"] for row in launches}]
    return {
        "run": run.path.name,
        "verdict": run.verdict,
        "ranks": len(run.ranks),
        "blocks": run.blocks,
        "device": run.manifest.get("device"),
        "model": run.manifest.get("model"),
        "build": run.manifest.get("build"),
        "losses": run.losses,
        "alignment_error_ns": analysis.alignment_error_ns(run),
        "clocks": rows(analysis.clocks(run)),
        "steps": rows(analysis.step_times(run)),
        "parts": rows(analysis.step_parts(run)),
        "launches": launches,
        "stops": {kind: stops_of(run, kind) for kind in kinds},
        "idle_after": {kind: idle_behind_experts(run, kind) for kind in kinds},
        "op_timeline": {kind: rows(analysis.op_timeline(run, layer_kind=kind)) for kind in kinds},
    }


def rows(table: Any) -> list[Row]:
    """Of an answer, as dicts."""
    found: list[Row] = table.to_pylist()
    return found


def stops_of(run: Run, kind: str) -> list[Row]:
    """A row for each numbered stop and rank: its lead over the last rank, its wait, how often it is last."""
    waits = {(row["stop"], row["rank"]): row for row in rows(analysis.stops(run, layer_kind=kind))}
    found = []
    for row in rows(analysis.arrivals(run, layer_kind=kind)):
        wait = waits.get((row["stop"], row["rank"]))
        if stop_number(row["stop"]) is None or wait is None:
            continue
        of_wait = {
            name: value for name, value in wait.items() if name.startswith(("wait_", "last_", "tied_"))
        }
        of_lead = {name: value for name, value in row.items() if name.startswith(("lead_", "spread_"))}
        found.append({"stop": row["stop"], "rank": row["rank"], "n": row["n"], **of_lead, **of_wait})
    return found


def idle_behind_experts(run: Run, kind: str) -> Row | None:
    """From GEMM 2 to the end of a launch; None for a run without it."""
    table = rows(analysis.idle_after(run, layer_kind=kind))
    return next((row for row in table if row["op"] == LAST_EXPERT_OP), None)


def markdown(facts: dict[str, Any], timing: Row | None, chain: Row | None) -> str:
    """All tables, from facts, and the figures of the two benches where they are there."""
    model = facts["model"] or {}
    layers = f"{model.get('layers_run')} of {model.get('num_hidden_layers')} layers"
    lines = [
        f"{facts['ranks']} ranks x {facts['blocks']} blocks, ranks on one GPU: "
        f"{(facts['device'] or {}).get('virtual_ranks')}; {layers}, weights {model.get('weights')}, input "
        f"{model.get('input')}; the run is {facts['verdict']}",
        "",
        *step_lines(facts),
        *launch_lines(facts),
        *stop_lines(facts),
        *idle_lines(facts),
        *timing_lines(timing),
        *chain_lines(chain),
    ]
    return "\n".join(lines) + "\n"


def step_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Parts of a step by the stamps, and whole steps by the host's clock."""
    yield "| by the stamps | n | launches | us p10 | p50 | p90 | of the step |"
    yield "|---|---|---|---|---|---|---|"
    for row in facts["parts"]:
        share = f"{row['share']:.1%}" if row["share"] is not None else ""
        yield f"| {row['part']} | {row['n']} | {row['launches_p50']} | {spread(row, 'part')} | {share} |"
    for row in facts["steps"]:
        if row["clock"] == "host":
            yield f"| step, by the host | {row['n']} | | {spread(row, 'step')} | |"
    yield ""


def launch_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Each kind of launch."""
    yield "| launch | n | us p10 | p50 | p90 |"
    yield "|---|---|---|---|---|"
    for row in facts["launches"]:
        yield f"| {row['kind']} | {row['n']} | {spread(row, 'launch')} |"
    yield ""


def stop_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Skew at the stops: how long the last rank is waited for, over all ranks, and which it is."""
    error = facts["alignment_error_ns"]
    yield (
        "Arrival at the stops, over all ranks; clocks of different GPUs are aligned to "
        f"{'nothing known' if error is None else f'{error:,} ns'}."
    )
    yield ""
    yield "| stop | n | until the last rank, us mean | longest p50 | longest p90 | often last | wait p50 |"
    yield "|---|---|---|---|---|---|---|"
    for kind, of_kind in facts["stops"].items():
        for stop in dict.fromkeys(row["stop"] for row in of_kind):
            yield f"| {kind} {stop} | {stop_cells([row for row in of_kind if row['stop'] == stop])} |"
    yield ""


def stop_cells(of_stop: list[Row]) -> str:
    """One stop's ranks in a row; empty cells for what cannot be told."""
    waits = sum(row["wait_p50_ns"] for row in of_stop) / len(of_stop)
    leads = [row for row in of_stop if row["lead_mean_ns"] is not None]
    if not leads:
        return f"{sum(row['n'] for row in of_stop)} | | | | | {waits / 1000:.2f}"
    mean = sum(row["lead_mean_ns"] for row in leads) / len(leads)
    p50, p90 = (max(row[f"lead_{name}_ns"] for row in leads) for name in ("p50", "p90"))
    judged = [row for row in leads if row["last_share"] is not None]
    last = max(judged, key=lambda row: row["last_share"], default=None)
    told = "" if last is None else f"rank {last['rank']}, {last['last_share']:.0%}"
    numbers = " | ".join(f"{ns / 1000:.2f}" for ns in (mean, p50, p90))
    return f"{leads[0]['lead_n']} | {numbers} | {told} | {waits / 1000:.2f}"


def idle_lines(facts: dict[str, Any]) -> Iterator[str]:
    """From GEMM 2 to the end."""
    yield "| from GEMM 2 to the end | n | us, median | idle in it, mean | of all idle time |"
    yield "|---|---|---|---|---|"
    for kind, row in facts["idle_after"].items():
        if row is not None:
            share = "" if row["share"] is None else f"{row['share']:.1%}"
            after, idle = row["after_p50_ns"] / 1000, row["idle_mean_ns"] / 1000
            yield f"| {kind} | {row['n']} | {after:.2f} | {idle:.2f} | {share} |"
    yield ""


def timing_lines(timing: Row | None) -> Iterator[str]:
    """What ``whole_steps_bench`` measured."""
    if timing is None:
        return
    yield f"Residual stream finite and the same bits on all ranks: {timing['one_stream']}."
    yield ""
    yield "| replayed in turn, longest process | us | 95 % | n |"
    yield "|---|---|---|---|"
    for name, us in timing["us"].items():
        yield f"| {name} | {interval(us)} |"
    for name, us in timing["more_us"].items():
        yield f"| {name}, more than {timing['more_than']} | {interval(us)} |"
    for name, us in timing["more_us_each"].items():
        yield f"| the same, {name} | {interval(us)} |"
    yield ""


def chain_lines(chain: Row | None) -> Iterator[str]:
    """What ``layer_bench`` measured, of one rank in loopback."""
    if chain is None:
        return
    yield f"One rank in loopback, {chain['layers']} layers, verify pass or layer: no skew of ranks is in it."
    yield ""
    yield "| one rank, replayed in turn | us | 95 % | n |"
    yield "|---|---|---|---|"
    for name, us in chain["us"].items():
        yield f"| {CHAIN_NAMES.get(name, name)} | {interval(us)} |"


def spread(row: Row, name: str) -> str:
    """Three cells of us."""
    return " | ".join(f"{row[f'{name}_{percent}_ns'] / 1000:,.1f}" for percent in ("p10", "p50", "p90"))


def interval(us: Row) -> str:
    """Three cells of an interval in us."""
    return f"{us['median']:,.1f} | {us['low']:,.1f} to {us['high']:,.1f} | {us['count']}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--timing", type=Path, help="JSON of whole_steps_bench; may be missing")
    parser.add_argument("--chain", type=Path, help="JSON of layer_bench; may be missing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all of it there")
    args = parser.parse_args()
    facts = facts_of(open_run(args.run))
    timing, chain = (
        json.loads(path.read_text()) if path is not None and path.exists() else None
        for path in (args.timing, args.chain)
    )
    if args.json is not None:
        args.json.write_text(json.dumps(facts | {"timing": timing, "chain": chain}, indent=1))
    print(markdown(facts, timing, chain), end="")


if __name__ == "__main__":
    main()
