"""``musetrace report``: where the time of a run went, as a page of text."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from musetrace import analysis
from musetrace.analysis.cubes import keep_cubes
from musetrace.cli.alignment_lines import alignment_sentence
from musetrace.cli.block_section import MOST_BLOCKS, block_lines
from musetrace.cli.chart import legend
from musetrace.cli.command import Command, add_json_option, exit_code_of
from musetrace.cli.conditions import condition_lines, labelled, loss_lines, loss_summary, totals
from musetrace.cli.critical_report import add_what_if_option, ask_critical, critical_json, critical_sections
from musetrace.cli.gap_sections import idle_lines, wait_lines
from musetrace.cli.observed_note import observed_json, observed_note
from musetrace.cli.output import Screen, add_width_option, print_json, print_lines, screen_of
from musetrace.cli.overlap_section import overlap_lines
from musetrace.cli.roofline_section import known_bytes, no_bytes_line, roofline_lines
from musetrace.cli.sections import ahead_lines, launch_lines, op_lines, step_lines, stop_lines
from musetrace.cli.step_section import (
    LEAST_SPREAD,
    device_bins,
    edge_lines,
    histogram_lines,
    outlier_lines,
    part_lines,
)
from musetrace.cli.text import wrap
from musetrace.cli.thresholds import Thresholds, add_threshold_options
from musetrace.store import Run, open_run


class ReportCommand(Command):
    """Conditions first; steps, each kind of launch, stops, blocks, idle, waits, loads; losses last."""

    name = "report"
    help = "print where the time of a run went"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare what to report on."""
        parser.add_argument("run", help="the run's folder")
        parser.add_argument(
            "--kind", help="only launches of this kind (sliding, global, entry, head), or of this kernel"
        )
        parser.add_argument("--rank", type=int, metavar="N", help="only this rank")
        parser.add_argument("--step", type=int, metavar="N", help="only this step")
        add_threshold_options(parser)
        add_what_if_option(parser)
        add_width_option(parser)
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the report."""
        screen, thresholds = screen_of(args), Thresholds.of(args)
        run = open_run(args.run)
        if args.step is None:
            keep_cubes(run)
        answers = ask(run, kind=args.kind, rank=args.rank, step=args.step, thresholds=thresholds)
        answers |= ask_critical(run, list(answers["ops"]), args.rank, args.step, args.what_if)
        if args.json:
            print_json(document(run, args, answers))
        else:
            print_lines(page(run, args, answers, screen))
        return exit_code_of(run.verdict)


_STEP_ANSWERS = ("step_parts", "step_histogram", "outlier_steps", "step_growth")

Answers = dict[str, Any]
Section = Callable[[pa.Table, Screen], list[str]]

_STOPS = "stops: how long a rank waits for the others; how often its data came last, or tied by the clock"
_BLOCKS = "blocks{of}: where their time goes, us per launch"
_SOME_BLOCKS = f"{_BLOCKS}; tied: other blocks of the rank that the clock cannot tell from it"
_IDLE = "{kind}: what blocks that do not work wait for"
_OVERLAP = "{kind}: engines at work at the same time, of the time of all blocks"
_ROOFLINE = "{kind}: bytes that all blocks read, over the time in which at least one is reading"
_WAITS = (
    "waits: longest in all; not ready: until the awaited job of its block, its rank or all ranks was done"
)
_EDGES = (
    "launches: medians in us from the begin, of when all blocks have come, the first goes, the next launch "
    "begins, computes, has all its blocks; lead: it begins before a block is free"
)
_HISTOGRAM = "steps by their length on the device"
_OUTLIERS = (
    "slow steps, by the threshold, and what grew in them, per block: busy time, idle time by cause, gaps"
)
_LOADS = "loads: how long before its op's compute, across how many ops, during which"


def ask(run: Run, *, kind: str | None, rank: int | None, step: int | None, thresholds: Thresholds) -> Answers:
    """All questions of a report; ``ops`` by kind of launch, every other one a table."""
    launches = analysis.launch_times(run, rank=rank, step=step)
    kinds = launches["kind"].to_pylist() if kind is None else [kind]
    kernels = _kernels(run)
    stops = analysis.stops(run, layer_kind=kind, step=step)
    return {
        "steps": analysis.step_times(run, rank=rank, step=step),
        "launches": launches if kind is None else launches.filter(pc.equal(launches["kind"], kind)),
        "ops": {one: analysis.op_timeline(run, layer_kind=one, rank=rank, step=step) for one in kinds},
        "stops": stops if rank is None else stops.filter(pc.equal(stops["rank"], rank)),
        "blocks": analysis.block_busy(run, layer_kind=kind, rank=rank, step=step),
        "blocks_of_kernels": {
            one: analysis.block_busy(run, layer_kind=one, rank=rank, step=step)
            for one in kinds
            if one in kernels and len(kernels) > 1
        },
        "idle": {
            one: analysis.idle(run, layer_kind=one, rank=rank, step=step, **thresholds.of_idle)
            for one in kinds
        },
        "idle_after": {one: analysis.idle_after(run, layer_kind=one, rank=rank, step=step) for one in kinds},
        **_of_engines(run, kinds, rank, step),
        "attribution": analysis.attribution(
            run, layer_kind=kind, rank=rank, step=step, least_last_share=thresholds.least_last_share
        ),
        "loads_ahead": analysis.ring_ahead(run, layer_kind=kind, rank=rank, step=step),
        "launch_edges": analysis.launches(run, layer_kind=kind, rank=rank, step=step),
        **_of_steps(run, rank, step, thresholds.outliers),
    }


def _of_engines(run: Run, kinds: Sequence[str], rank: int | None, step: int | None) -> Answers:
    """What engines do beside each other, over time, and how fast they read; each by kind of launch."""
    scope: dict[str, Any] = {"rank": rank, "step": step}
    moved = known_bytes(run)
    return {
        "overlap": {one: analysis.overlap(run, layer_kind=one, **scope) for one in kinds},
        "utilisation": {one: analysis.utilisation(run, layer_kind=one, **scope) for one in kinds},
        "roofline": {one: analysis.roofline(run, layer_kind=one, **scope, moved=moved) for one in kinds},
    }


def _of_steps(run: Run, rank: int | None, step: int | None, threshold: float) -> Answers:
    """What is about steps as a whole; of the slow ones only the one that was chosen."""
    slow = {
        "outlier_steps": analysis.outlier_steps(run, rank=rank, threshold=threshold),
        "step_growth": analysis.step_growth(run, rank=rank, threshold=threshold),
    }
    if step is not None:
        slow = {name: table.filter(pc.equal(table["step"], step)) for name, table in slow.items()}
    return {
        "step_parts": analysis.step_parts(run, rank=rank, step=step),
        "step_histogram": analysis.step_histogram(run, rank=rank),
        **slow,
    }


def document(run: Run, args: argparse.Namespace, answers: Answers) -> dict[str, Any]:
    """The report as JSON: every answer's rows, times in ns."""
    manifest = run.manifest
    names = ("recording_id", "device", "model", "build", "stamps", "clock", "recorded_at")
    return {
        "run": str(run.path),
        "verdict": run.verdict,
        "conditions": {
            **{name: manifest.get(name) for name in names},
            "tick_ns": analysis.tick_ns(run),
            "ranks": list(run.ranks),
            "blocks": run.blocks,
            **totals(run),
        },
        "scope": {"kind": args.kind, "rank": args.rank, "step": args.step},
        "thresholds": Thresholds.of(args).to_json(),
        "ignored_spans": analysis.ignored_spans(answers["blocks"]),
        "below_tick_spans": analysis.below_tick_spans(answers["blocks"]),
        "observed": observed_json(answers),
        "steps": answers["steps"].to_pylist(),
        "launches": answers["launches"].to_pylist(),
        "ops": {kind: table.to_pylist() for kind, table in answers["ops"].items()},
        "clocks": analysis.clocks(run).to_pylist(),
        "alignment_error_ns": analysis.alignment_error_ns(run),
        "stops": answers["stops"].to_pylist(),
        "blocks": answers["blocks"].to_pylist(),
        **_blocks_of_kernels(answers),
        "idle": {kind: table.to_pylist() for kind, table in answers["idle"].items()},
        "idle_after": {kind: table.to_pylist() for kind, table in answers["idle_after"].items()},
        "overlap": {kind: table.to_pylist() for kind, table in answers["overlap"].items()},
        "utilisation": {kind: table.to_pylist() for kind, table in answers["utilisation"].items()},
        "roofline": {kind: table.to_pylist() for kind, table in answers["roofline"].items()},
        "attribution": answers["attribution"].to_pylist(),
        "loads_ahead": answers["loads_ahead"].to_pylist(),
        "launch_edges": answers["launch_edges"].to_pylist(),
        **{name: answers[name].to_pylist() for name in _STEP_ANSWERS},
        **critical_json(answers),
        "losses": run.losses,
        "notes": list(run.notes),
    }


def page(run: Run, args: argparse.Namespace, answers: Answers, screen: Screen) -> list[str]:
    """The report as lines."""
    lines = wrap(f"musetrace report: {screen.shown(run.path)} is {run.verdict}", screen.width)
    lines += condition_lines(run, screen, most_lines=2)
    lines += labelled("losses", loss_summary(run), screen)
    scope = {"kind": args.kind, "rank": args.rank, "step": args.step}
    chosen = ", ".join(f"{name} {screen.shown(value)}" for name, value in scope.items() if value is not None)
    if chosen:
        lines += labelled("only", chosen, screen)
    if told := Thresholds.of(args).sentence():
        lines += labelled("told", told, screen)
    for titles, table, section in _sections(answers, screen, _kernels(run), alignment_sentence(run, screen)):
        if table.num_rows:
            titles = [*titles, *observed_note(table)]
            wrapped = [line for title in titles for line in wrap(title, screen.width, indent="  ")]
            lines += ["", *wrapped, *section(table, screen)]
    rooflines = list(answers["roofline"].values())
    if rooflines and not any(table.num_rows for table in rooflines):
        lines += ["", *no_bytes_line(rooflines[0], screen)]
    if not answers["launches"].num_rows:
        lines += ["", "no launch left a stamp: there are only host times to report"]
    lines += ["", *loss_lines(run, screen, all_kinds=False)]
    return lines + [line for text in quality(run, answers) for line in wrap(text, screen.width)]


def quality(run: Run, answers: Answers) -> list[str]:
    """What is to be known of the spans that the numbers are made of, a sentence each."""
    ignored, below = (of(answers["blocks"]) for of in (analysis.ignored_spans, analysis.below_tick_spans))
    sentences = [f"{ignored:,} spans with a flag are in none of these numbers"] if ignored else []
    if below:
        sentences.append(
            f"{below:,} spans are shorter than the clock's tick of {analysis.tick_ns(run):,} ns: "
            "they count with the length that was stamped"
        )
    return sentences


def _step_sections(answers: Answers) -> list[tuple[list[str], pa.Table, Section]]:
    """Parts of a step; where there are enough steps, how they spread; the slow ones."""
    spread: list[tuple[list[str], pa.Table, Section]] = []
    if sum(row["n"] for row in device_bins(answers["step_histogram"])) >= LEAST_SPREAD:
        spread = [([_HISTOGRAM], answers["step_histogram"], histogram_lines)]
    slow = partial(outlier_lines, answers["step_growth"])
    return [
        ([], answers["step_parts"], part_lines),
        *spread,
        ([_OUTLIERS], answers["outlier_steps"], slow),
    ]


def _engine_sections(answers: Answers, screen: Screen) -> list[tuple[list[str], pa.Table, Section]]:
    """For each kind of launch, what its engines do beside each other, and how fast they read."""
    found: list[tuple[list[str], pa.Table, Section]] = []
    for kind, table in answers["overlap"].items():
        over_time = answers["utilisation"][kind]
        found.append(([_OVERLAP.format(kind=screen.shown(kind))], table, partial(overlap_lines, over_time)))
        roofline = answers["roofline"][kind]
        found.append(([_ROOFLINE.format(kind=screen.shown(kind))], roofline, roofline_lines))
    return found


def _kernels(run: Run) -> tuple[str, ...]:
    """The kernels of a run that has kernels of other people: their names are its kinds of launches."""
    return tuple(kernel.name for kernel in run.job_table.kernels)


def _blocks_of_kernels(answers: Answers) -> dict[str, Any]:
    tables = answers["blocks_of_kernels"]
    return (
        {"blocks_of_kernels": {name: table.to_pylist() for name, table in tables.items()}} if tables else {}
    )


def _blocks_title(table: pa.Table, of: str = "") -> str:
    return (_SOME_BLOCKS if table.num_rows > MOST_BLOCKS else _BLOCKS).format(of=of)


def _sections(
    answers: Answers, screen: Screen, kernels: Sequence[str], aligned: str
) -> list[tuple[list[str], pa.Table, Section]]:
    """Titles, answer and form of each section, in the order of the page."""
    ops: list[tuple[list[str], pa.Table, Section]] = []
    for kind, table in answers["ops"].items():
        title = f"{screen.shown(kind)} launch: us from its begin, over blocks x layers x steps x ranks"
        if kind in kernels:
            title = f"kernel {screen.shown(kind)}: us from its launch's begin, over blocks x launches x ranks"
        ops.append(([title] if ops else [legend(screen.unicode), "", title], table, op_lines))
    blocks: list[tuple[list[str], pa.Table, Section]] = [
        ([_blocks_title(table, f" of kernel {screen.shown(name)}")], table, block_lines)
        for name, table in answers["blocks_of_kernels"].items()
    ]
    blocks = blocks or [([_blocks_title(answers["blocks"])], answers["blocks"], block_lines)]
    gaps: list[tuple[list[str], pa.Table, Section]] = [
        (
            [_IDLE.format(kind=screen.shown(kind))],
            table,
            partial(idle_lines, answers["idle_after"][kind]),
        )
        for kind, table in answers["idle"].items()
    ]
    return [
        ([], answers["steps"], step_lines),
        *_step_sections(answers),
        ([], answers["launches"], launch_lines),
        ([_EDGES], answers["launch_edges"], edge_lines),
        *ops,
        ([_STOPS, aligned] if aligned else [_STOPS], answers["stops"], stop_lines),
        *blocks,
        *gaps,
        *_engine_sections(answers, screen),
        ([_WAITS], answers["attribution"], wait_lines),
        *critical_sections(answers, screen),
        ([_LOADS], answers["loads_ahead"], ahead_lines),
    ]
