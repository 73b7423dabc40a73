"""The questions of a report, in the order of its page: how each is asked, and how its answer is shown.

A new section is one entry of :data:`QUESTIONS`, a name in ``section_names`` and a function from its answer to
blocks (``document``). A line that such a function has laid out itself is a ``str``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from musetrace import analysis
from musetrace.analysis.priorities.findings import Evidence, findings_from
from musetrace.cli.alignment_lines import alignment_sentence
from musetrace.cli.output import Screen
from musetrace.cli.report.answers import Answer, Answers, Function, each, whole
from musetrace.cli.report.block_section import MOST_BLOCKS, busy_blocks
from musetrace.cli.report.critical_section import asked_blocks, critical_blocks, what_if_blocks
from musetrace.cli.report.document import Block, Legend, Section, Sentence
from musetrace.cli.report.findings_section import finding_blocks, named_causes
from musetrace.cli.report.gap_sections import idle_blocks, wait_blocks
from musetrace.cli.report.overlap_section import overlap_blocks
from musetrace.cli.report.pictures import causes_picture, launch_picture, path_picture, timeline_picture
from musetrace.cli.report.roofline_section import no_bytes_sentence, roofline_blocks
from musetrace.cli.report.section_names import SECTION_NAMES
from musetrace.cli.report.step_section import (
    LEAST_SPREAD,
    device_bins,
    edge_blocks,
    histogram_blocks,
    outlier_blocks,
    part_blocks,
)
from musetrace.cli.report.time_sections import (
    ahead_blocks,
    arrival_blocks,
    launch_blocks,
    op_blocks,
    step_blocks,
    stop_blocks,
)
from musetrace.known_bytes import known_bytes
from musetrace.wording.observed import observed_note

Show = Callable[[Answers, Screen], list[Section]]


@dataclass(frozen=True)
class Question:
    """One question: ``key`` is that of its answer in JSON, ``page`` that of ``musetrace explain``."""

    key: str
    page: str
    ask: Callable[[Answers], Answer]
    show: Show
    only_if_any: bool = False  # an answer without a table has no key in JSON


def table_shown(key: str, lead: str, blocks: Callable[[pa.Table, Screen], Sequence[Block]]) -> Show:
    """Shows an answer that is one table as one section; an empty one as none."""

    def show(answers: Answers, screen: Screen) -> list[Section]:
        table = answers.table(key)
        return [_section(key, "", lead, table, blocks(table, screen))] if table.num_rows else []

    return show


def kinds_shown(key: str, lead: str, blocks: Callable[[pa.Table, Screen], Sequence[Block]]) -> Show:
    """Shows a table for each kind of launch as a section each."""

    def show(answers: Answers, screen: Screen) -> list[Section]:
        return [
            _section(key, _of_kind(answers, kind, screen), lead, table, blocks(table, screen))
            for kind, table in answers.by_kind(key).items()
            if table.num_rows
        ]

    return show


def _section(key: str, of: str, lead: str, table: pa.Table, blocks: Sequence[Block]) -> Section:
    """The section of a table; how much of it was recorded is said where that is not all."""
    name, note = SECTION_NAMES[key], observed_note(table)
    noted = [Sentence(note, "  "), *blocks] if note else blocks
    return Section(key, f"{name} of {of}" if of else name, lead, noted)


def _of_kind(answers: Answers, kind: str, screen: Screen) -> str:
    name = screen.shown(kind)
    return f"kernel {name}" if kind in answers.kernels else f"{name} launches"


def _ask_idle(answers: Answers) -> dict[str, pa.Table]:
    idle: Function = analysis.idle
    return each(partial(idle, **answers.thresholds.of_idle))(answers)


def _ask_attribution(answers: Answers) -> pa.Table:
    least = answers.thresholds.least_last_share
    return whole(partial(analysis.attribution, least_last_share=least))(answers)


def _ask_roofline(answers: Answers) -> dict[str, pa.Table]:
    return each(partial(analysis.roofline, moved=known_bytes(answers.run)))(answers)


def _ask_findings(answers: Answers) -> pa.Table:
    evidence = Evidence(
        len(answers.run.ranks) if answers.scope.rank is None else 1,
        answers.table("steps"),
        answers.launches,
        answers.by_kind("idle"),
        answers.by_kind("idle_after"),
        answers.table("attribution"),
        answers.by_kind("what_ifs"),
    )
    return findings_from(answers.run, evidence)


def _ask_stops(answers: Answers) -> pa.Table:
    scope = answers.scope
    table = analysis.stops(answers.run, layer_kind=scope.kind, step=scope.step)
    return table if scope.rank is None else table.filter(pc.equal(table["rank"], scope.rank))


def _ask_kernel_blocks(answers: Answers) -> dict[str, pa.Table]:
    """Blocks of each kernel, of a run that has several."""
    kernels = answers.kernels
    of = [kind for kind in answers.kinds if kind in kernels and len(kernels) > 1]
    scope = answers.scope.of_whole
    return {kind: analysis.block_busy(answers.run, layer_kind=kind, **scope) for kind in of}


def _show_findings(answers: Answers, screen: Screen) -> list[Section]:
    lead = "what an average block is idle for, per launch and summed up over the launches of a step"

    def blocks(table: pa.Table, screen: Screen) -> list[Block]:
        return [*finding_blocks(table, answers.table("steps"), screen), causes_picture(table)]

    return table_shown("findings", lead, blocks)(answers, screen)


def _show_ops(answers: Answers, screen: Screen) -> list[Section]:
    sections = []
    for kind, table in answers.by_kind("ops").items():
        if not table.num_rows:
            continue
        over = "launches" if kind in answers.kernels else "layers x steps"
        lead = f"us from the launch's begin, over blocks x {over} x ranks"
        blocks = [timeline_picture(answers, kind, table), *op_blocks(table, screen)]
        sections.append(_section("ops", _of_kind(answers, kind, screen), lead, table, blocks))
    if sections:
        sections.insert(0, Section("ops", SECTION_NAMES["ops"], "", [Legend(), *launch_picture(answers)]))
    return sections


def _show_stops(answers: Answers, screen: Screen) -> list[Section]:
    lead = "how long a rank waits for the others; how often its data came last, or tied by the clock"
    aligned = alignment_sentence(answers.run, screen)

    def blocks(table: pa.Table, screen: Screen) -> list[Block]:
        return [*([Sentence(aligned, "  ")] if aligned else []), *stop_blocks(table, screen)]

    return table_shown("stops", lead, blocks)(answers, screen)


def _show_blocks(answers: Answers, screen: Screen) -> list[Section]:
    of_kernels = answers.by_kind("blocks_of_kernels").items()
    tables = [(_of_kind(answers, kind, screen), table) for kind, table in of_kernels]
    return [
        _section("blocks", of, _blocks_lead(table), table, busy_blocks(table, screen))
        for of, table in tables or [("", answers.table("blocks"))]
        if table.num_rows
    ]


def _blocks_lead(table: pa.Table) -> str:
    lead = "where their time goes, us per launch"
    if table.num_rows <= MOST_BLOCKS:
        return lead
    return f"{lead}; tied: other blocks of the rank that the clock cannot tell from it"


def _show_idle(answers: Answers, screen: Screen) -> list[Section]:
    after, named = answers.by_kind("idle_after"), named_causes(answers.table("findings"))
    return [
        _section(
            "idle",
            _of_kind(answers, kind, screen),
            "what blocks that do not work wait for",
            table,
            idle_blocks(table, after[kind], named, screen),
        )
        for kind, table in answers.by_kind("idle").items()
        if table.num_rows
    ]


def _show_waits(answers: Answers, screen: Screen) -> list[Section]:
    named = named_causes(answers.table("findings"))

    def blocks(table: pa.Table, screen: Screen) -> list[Block]:
        return wait_blocks(table, named, screen)

    return table_shown("attribution", _WAITS, blocks)(answers, screen)


def _show_spread(answers: Answers, screen: Screen) -> list[Section]:
    """How step times spread, where there are enough steps to tell."""
    steps = sum(row["n"] for row in device_bins(answers.table("step_histogram")))
    lead = "steps by their length on the device"
    if steps < LEAST_SPREAD:
        return []
    return table_shown("step_histogram", lead, histogram_blocks)(answers, screen)


def _show_slow(answers: Answers, screen: Screen) -> list[Section]:
    lead = "by the threshold, and what grew in them, per block: busy time, idle time by cause, gaps"

    def blocks(table: pa.Table, screen: Screen) -> list[Block]:
        return outlier_blocks(table, answers.table("step_growth"), screen)

    return table_shown("outlier_steps", lead, blocks)(answers, screen)


def _of_ranks(function: Function) -> Callable[[Answers], pa.Table]:
    """Asks a question that is about all steps."""
    return lambda answers: function(answers.run, rank=answers.scope.rank)


def _of_slow_steps(function: Function) -> Callable[[Answers], pa.Table]:
    """Asks about the slow steps of all; only the one in scope is kept."""

    def ask(answers: Answers) -> pa.Table:
        threshold, step = answers.thresholds.outliers, answers.scope.step
        table = function(answers.run, rank=answers.scope.rank, threshold=threshold)
        return table if step is None else table.filter(pc.equal(table["step"], step))

    return ask


def _ask_what_ifs(answers: Answers) -> dict[str, pa.Table]:
    return {kind: analysis.what_ifs(answers.run, sampled=of) for kind, of in answers.samples.items()}


def _ask_changes(answers: Answers) -> dict[str, pa.Table]:
    """What the changes that were asked for would bring; nothing where none was."""
    run, changes = answers.run, answers.changes
    if not changes:
        return {}
    return {kind: analysis.what_if(run, changes, sampled=of) for kind, of in answers.samples.items()}


def _show_critical(answers: Answers, screen: Screen) -> list[Section]:
    """For each kind what held up its launches, and what changes would bring; then what was asked for."""
    sections, what_ifs = [], answers.by_kind("what_ifs")
    named = named_causes(answers.table("findings"))
    for kind, table in answers.by_kind("critical_path").items():
        if not table.num_rows:
            continue
        of = _of_kind(answers, kind, screen)
        edges = answers.by_kind("critical_edges")[kind]
        blocks = [*path_picture(answers, kind), *critical_blocks(table, edges, screen)]
        sections.append(_section("critical_path", of, "what held up the end of a launch", table, blocks))
        if found := what_if_blocks(what_ifs[kind], named, screen):
            sections.append(_section("what_ifs", of, "", what_ifs[kind], found))
    asked = answers.by_kind("what_if")
    if found := asked_blocks(asked, screen):
        first = next(iter(asked.values()))
        sections.append(_section("what_if", "", "", first, found))
    return sections


def _show_overlap(answers: Answers, screen: Screen) -> list[Section]:
    lead, over_time = (
        "engines at work at the same time, of the time of all blocks",
        answers.by_kind("utilisation"),
    )
    return [
        _section(
            "overlap",
            _of_kind(answers, kind, screen),
            lead,
            table,
            overlap_blocks(table, over_time[kind], screen),
        )
        for kind, table in answers.by_kind("overlap").items()
        if table.num_rows
    ]


def _show_roofline(answers: Answers, screen: Screen) -> list[Section]:
    """A section for each kind of launch whose bytes are known, or why none is."""
    tables = answers.by_kind("roofline")
    if tables and not any(table.num_rows for table in tables.values()):
        first = next(iter(tables.values()))
        return [Section("roofline", SECTION_NAMES["roofline"], no_bytes_sentence(first, screen), [])]
    lead = "bytes that all blocks read, over the time in which at least one is reading"
    return kinds_shown("roofline", lead, roofline_blocks)(answers, screen)


def _show_nothing(answers: Answers, screen: Screen) -> list[Section]:
    """The answer stands in the section of another question."""
    return []


_STEPS = "how long a step takes, by the device's clock and the host's"
_LAUNCHES = "how long a launch of each kind takes, and the gap to the next; negative where they overlap"
_EDGES = (
    "medians in us from the begin, of when all blocks have come, the first goes, the next launch "
    "begins, computes, has all its blocks; lead: it begins before a block is free"
)
_WAITS = (
    "longest in all; not ready: until the awaited job of its block, its rank or all ranks was done; "
    "times of warps, of which several may wait at once"
)
_ARRIVALS = (
    "when blocks are through with what a stop waits for; apart: from the first of a rank to its last; "
    "early: how long an average one is through before the last; lead: the rank before the last "
    "rank, which is what skew costs it"
)
_LOADS = "how long before its op's compute, across how many ops, during which"

QUESTIONS = (
    Question(
        "steps",
        "steps",
        lambda answers: analysis.step_times(answers.run, **answers.scope.of_whole),
        table_shown("steps", _STEPS, step_blocks),
    ),
    Question(
        "step_parts",
        "steps",
        lambda answers: analysis.step_parts(answers.run, **answers.scope.of_whole),
        table_shown("step_parts", "launches in them, how long they take", part_blocks),
    ),
    Question("step_histogram", "steps", _of_ranks(analysis.step_histogram), _show_spread),
    Question("outlier_steps", "steps", _of_slow_steps(analysis.outlier_steps), _show_slow),
    Question("step_growth", "steps", _of_slow_steps(analysis.step_growth), _show_nothing),
    Question(
        "launches",
        "launches",
        lambda answers: answers.launches,
        table_shown("launches", _LAUNCHES, launch_blocks),
    ),
    Question("findings", "findings", _ask_findings, _show_findings),
    Question("ops", "op_timeline", each(analysis.op_timeline), _show_ops),
    Question("idle", "idle", _ask_idle, _show_idle),
    Question("idle_after", "idle", each(analysis.idle_after), _show_nothing),
    Question(
        "attribution",
        "attribution",
        _ask_attribution,
        _show_waits,
    ),
    Question("stops", "stops", _ask_stops, _show_stops),
    Question(
        "arrivals",
        "arrivals",
        whole(analysis.arrivals),
        table_shown("arrivals", _ARRIVALS, arrival_blocks),
    ),
    Question(
        "loads_ahead",
        "ring_ahead",
        whole(analysis.ring_ahead),
        table_shown("loads_ahead", _LOADS, ahead_blocks),
    ),
    Question("blocks", "block_busy", whole(analysis.block_busy), _show_blocks),
    Question("blocks_of_kernels", "block_busy", _ask_kernel_blocks, _show_nothing, only_if_any=True),
    Question(
        "critical_path",
        "critical_path",
        lambda answers: {kind: path.parts for kind, path in answers.paths.items()},
        _show_critical,
    ),
    Question(
        "critical_edges",
        "critical_path",
        lambda answers: {kind: path.edges for kind, path in answers.paths.items()},
        _show_nothing,
    ),
    Question("what_ifs", "critical_path", _ask_what_ifs, _show_nothing),
    Question("what_if", "critical_path", _ask_changes, _show_nothing),
    Question("overlap", "overlap", each(analysis.overlap), _show_overlap),
    Question("utilisation", "overlap", each(analysis.utilisation), _show_nothing),
    Question("roofline", "roofline", _ask_roofline, _show_roofline),
    Question(
        "launch_edges",
        "launches",
        whole(analysis.launches),
        table_shown("launch_edges", _EDGES, edge_blocks),
    ),
)
ASKS = {question.key: question.ask for question in QUESTIONS}
