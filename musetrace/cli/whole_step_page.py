"""The times of a whole decode step as lines of text: the article's table for this device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from musetrace.analysis.certainty.bootstrap import LEAST_VALUES, Interval
from musetrace.cli.conditions import described, labelled
from musetrace.cli.output import Screen
from musetrace.cli.overhead_page import conditions_text
from musetrace.cli.table import Column, table_lines
from musetrace.cli.text import wrap
from musetrace.wording.numbers import NOTHING, us

if TYPE_CHECKING:
    from musetrace.overhead.built_in.whole_step.measure import WholeStep

_MEANINGS = {
    "draft": "draft with its tree",
    "verify": "embedding and verify",
    "accept": "accepting, rows kept",
    "chain, programmatic launch": "chain, programmatic launch: verify",
    "chain": "chain: verify",
}


def whole_step_page(step: WholeStep, screen: Screen) -> list[str]:
    """What was timed and how, the table, and what it does not say."""
    subject = step.subject
    title = f"{subject['model']}, {subject['ranks']} of {subject['tp']} ranks x {subject['blocks']} blocks"
    lines = wrap(f"musetrace overhead: whole steps of {screen.shown(title)}", screen.width)
    lines += labelled("device", described(subject["device"], screen), screen)
    for when, reading in step.conditions.items():
        lines += labelled(when, screen.shown(conditions_text(reading)), screen)
    lines += labelled("method", _method(step), screen)
    lines += [
        "",
        "time of a CUDA graph between events on the GPU, and of the host to queue it",
        *_table(step, screen),
    ]
    lines += [
        "",
        *labelled("beyond", f"a step takes {_us(step.beyond_ns)} us beyond draft and verify", screen),
    ]
    lines += labelled("launches", _launches(step), screen)
    return [
        *lines,
        *(line for text in _warnings(step) for line in wrap(f"! {text}", screen.width, indent="  ")),
    ]


def _method(step: WholeStep) -> str:
    subject = step.subject
    return (
        f"all graphs in turn, forward and backward, {subject['rounds']} rounds, each from position "
        f"{subject['context']} behind random keys and values; medians with 95 % bootstrap intervals, seed "
        f"{subject['seed']}"
    )


def _table(step: WholeStep, screen: Screen) -> list[str]:
    columns = [
        Column("", [_MEANINGS.get(time.name, time.name) for time in step.times], left=True, widest=36),
        Column("us", [us(time.device_ns.median, 1) for time in step.times]),
        Column("95 %", [_range(time.device_ns) for time in step.times], left=True),
        Column("n", [str(time.device_ns.count) for time in step.times]),
        Column(
            "queued in, us",
            [NOTHING if time.queued_ns is None else us(time.queued_ns.median, 1) for time in step.times],
        ),
    ]
    return table_lines(columns, screen.width)


def _launches(step: WholeStep) -> str:
    of = step.launches
    chain = step.kernels_of_chain
    beside = "" if chain is None else f"; the chain has {chain} kernels a layer"
    return (
        f"{of['step']} a step: {of['draft']} of the draft, {of['verify']} of verify, {of['accept']} behind it"
        + beside
    )


def _warnings(step: WholeStep) -> list[str]:
    """What keeps the numbers from being more than they are."""
    said, subject = [], step.subject
    if subject["rounds"] * 2 < LEAST_VALUES:
        said.append(f"too few rounds for a 95 % interval: use --rounds {LEAST_VALUES // 2}")
    if subject["ranks"] < subject["tp"]:
        said.append(
            f"one GPU plays all {subject['tp']} ranks: a real step also waits for the slowest GPU, and no "
            "such skew is in these figures"
        )
    if step.kernels_of_chain is None:
        said.append("no chain stands beside: it is one rank, so use --tp 1")
    return said


def _us(interval: Interval) -> str:
    return f"{us(interval.median, 1)} {_range(interval)}"


def _range(interval: Interval) -> str:
    return f"[{us(interval.low, 1)} {us(interval.high, 1)}]"
