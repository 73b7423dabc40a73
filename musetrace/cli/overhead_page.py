"""A measurement of the stamps' cost as lines of text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from musetrace.analysis.certainty.bootstrap import LEAST_VALUES, Interval
from musetrace.cli.conditions import labelled
from musetrace.cli.output import Screen
from musetrace.cli.table import Column, table_lines
from musetrace.cli.text import wrap
from musetrace.overhead.clocks import Clock
from musetrace.overhead.machine_code import CodeComparison
from musetrace.overhead.result import LAUNCHES, NULL, STEP, Comparison, OverheadResult
from musetrace.overhead.statistics import CANNOT_TELL
from musetrace.wording.numbers import NOTHING, count, size, us

_MEASURES = {
    LAUNCHES: "the launches of a step, without what the host does around them",
    STEP: "a whole step as the host sees it",
}


def page(result: OverheadResult, screen: Screen) -> list[str]:
    """What was measured and how, times, costs, and what was checked."""
    lines = wrap(f"musetrace overhead: {screen.shown(_subject(result.facts.subject))}", screen.width)
    lines += labelled("device", screen.shown(_device(result.facts.subject)), screen)
    for when, reading in result.facts.conditions.items():
        lines += labelled(when, screen.shown(conditions_text(reading)), screen)
    lines += labelled("method", _method(result), screen)
    for measure in result.baseline_ns:
        title = _MEASURES[measure] if len(result.baseline_ns) > 1 else "a step"
        lines += ["", *wrap(f"time of {title} ({_clock(result.facts.clocks[measure])})", screen.width)]
        lines += _time_lines(result, measure, screen)
        lines += ["", *wrap(f"beside {result.turns.baseline}, median of neighbours [95 %]", screen.width)]
        for side in result.turns.sides:
            lines += _cost_lines(result, result.of(side, measure), screen)
    lines += ["", *_warnings(result, screen), *_check_lines(result, screen)]
    return lines


def _subject(subject: dict[str, Any]) -> str:
    if "model" not in subject:
        return str(subject.get("call"))
    loopback = " (loopback)" if subject["ranks"] < subject["tp"] else ""
    return (
        f"{subject['kind']} of {subject['model']}, {subject['ranks']} of {subject['tp']} ranks{loopback} x "
        f"{subject['blocks']} blocks, {subject['launches_per_step']} launches a step, 16 tokens from "
        f"position {subject['position']}"
    )


def _device(subject: dict[str, Any]) -> str:
    device = subject.get("device")
    if not isinstance(device, dict):
        return "as the program chooses"
    words = [str(device.get("name"))]
    words += [f"{name} {device[name]}" for name in ("driver", "cuda", "sms") if device.get(name)]
    words += [
        f"{build}: {fit['registers']} registers"
        + (f", {fit['local_bytes']} B spilled" if fit["local_bytes"] else "")
        for build, fit in subject["layer_kernel"].items()
    ]
    return ", ".join(words)


def conditions_text(reading: dict[str, Any]) -> str:
    """A reading of the device's conditions in words."""
    if "missing" in reading:
        return f"not known: {reading['missing']}"
    if "sm_mhz" not in reading:
        return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in reading.items())
    throttled = reading.get("throttled_by")
    held = "not known" if throttled is None else ", ".join(throttled) or "nothing"
    return (
        f"SM {_whole(reading['sm_mhz'])} of {_whole(reading['sm_most_mhz'])} MHz, "
        f"{_whole(reading['power_w'])} of {_whole(reading['power_limit_w'])} W, "
        f"{_whole(reading['temperature_c'])} C, held back by {held}"
    )


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"


def _method(result: OverheadResult) -> str:
    schedule = result.schedule
    return (
        f"{schedule.rounds} rounds of ABBA and BAAB beside {result.turns.baseline}, {schedule.steps} "
        f"step{'s' * (schedule.steps != 1)} a turn, {schedule.warm_up} warm-up turns; intervals: 95 % "
        f"bootstrap of the median, seed {result.seed}; {NULL} is {result.turns.baseline} beside itself: what "
        "this method calls noise"
    )


def _clock(clock: Clock) -> str:
    coarse = f", {clock.resolution_ns:g} ns" if clock.resolution_ns > 1 else ""
    return clock.name + coarse


def _time_lines(result: OverheadResult, measure: str, screen: Screen) -> list[str]:
    times = {result.turns.baseline: result.baseline_ns[measure]}
    times |= {side: result.of(side, measure).time_ns for side in result.turns.sides}
    columns = [
        Column("", [screen.shown(name) for name in times], left=True),
        Column("us a step", [us(time.median, 2) for time in times.values()]),
        Column("95 %", [f"[{us(time.low, 2)} {us(time.high, 2)}]" for time in times.values()], left=True),
    ]
    launches = {name: result.turns.counts.per_step(name) for name in times}
    if any(launches.values()) and _is_of_launches(result, measure):
        each = [time.median / made if (made := launches[name]) else None for name, time in times.items()]
        columns.append(Column("us a launch", [us(value, 3) for value in each]))
    return table_lines(columns, screen.width)


def _is_of_launches(result: OverheadResult, measure: str) -> bool:
    """Whether a measure is that of launches: where it has a sibling, that of whole steps is not."""
    return measure == LAUNCHES or len(result.baseline_ns) == 1


def _cost_lines(result: OverheadResult, comparison: Comparison, screen: Screen) -> list[str]:
    amounts = [f"{_interval(comparison.added_ns, 1000, 2)} us a step"]
    per_launch = comparison.added_ns_per_launch
    is_of_launches = _is_of_launches(result, comparison.measure)
    if per_launch is not None and is_of_launches:
        amounts.insert(0, f"{_interval(per_launch, 1000, 3)} us a launch")
    amounts.append(f"{_interval(comparison.added_share, 0.01, 2)} %")
    said = comparison.verdict + (":" if comparison.verdict == CANNOT_TELL else "")
    text = f"{screen.shown(comparison.side):<11} {said} {', '.join(amounts)}"
    slowest, of_all = comparison.ns_per_stamp_of_slowest, comparison.ns_per_stamp_of_all
    if slowest and of_all and comparison.verdict != CANNOT_TELL and is_of_launches:
        text += (
            f"; over the stamps of the slowest blocks {_interval(slowest, 1, 2)} ns each, over those of all "
            f"{of_all.median:.4f} ns"
        )
    return wrap(text, screen.width, indent=" " * 12)


def _interval(interval: Interval, unit: float, decimals: int) -> str:
    low, median, high = (
        f"{value / unit:.{decimals}f}" for value in (interval.low, interval.median, interval.high)
    )
    return f"{median} [{low} {high}]"


def _warnings(result: OverheadResult, screen: Screen) -> list[str]:
    """What keeps the numbers from being believed."""
    said = []
    if result.schedule.rounds < LEAST_VALUES:
        said.append(
            f"{result.schedule.rounds} rounds are too few for a 95 % interval: use --rounds {LEAST_VALUES}"
        )
    for measure in result.baseline_ns:
        for null in (result.of(side, measure) for side in result.null_tests):
            if null.verdict != CANNOT_TELL:
                said.append(
                    f"a null test, {null.side}, found a difference ({measure}): a cost below "
                    f"{us(abs(null.added_ns.median), 2)} us a step may be noise; use more --rounds"
                )
    recorder = result.facts.recorder
    if isinstance(recorder, dict) and (recorder["lost_launches"] or recorder["state"] != "closed"):
        said.append(f"the recorder did not record all: its row says less than it costs ({recorder['state']})")
    return [line for text in said for line in wrap(f"! {screen.shown(text)}", screen.width, indent="  ")]


def _check_lines(result: OverheadResult, screen: Screen) -> list[str]:
    lines = []
    for label, texts in (
        ("stamps", _stamps(result)),
        ("outputs", _outputs(result)),
        ("counts", _counts(result)),
        ("recorder", _recorder(result.facts.recorder)),
    ):
        for text in texts:
            lines += labelled(label, screen.shown(text), screen)
    code = result.facts.machine_code
    return lines + (
        labelled("code", screen.shown(code), screen) if isinstance(code, str) else code_lines(code, screen)
    )


def _stamps(result: OverheadResult) -> Iterable[str]:
    for side, counted in result.facts.stamps.items():
        looked = "" if counted.launches is None else f"; {count(counted.launches)} launches stamped"
        yield f"{side}: {count(counted.all)} in a step, {count(counted.slowest)} by slowest blocks{looked}"
    for side, missing in result.unstamped.items():
        yield f"DIFFERENT: {side}: {missing}, so its cost is not shown"


def _outputs(result: OverheadResult) -> Iterable[str]:
    outputs = result.turns.outputs
    for side, found in outputs.first_differences.items():
        yield f"DIFFERENT: {side}, {found}"
    if not outputs.compared:
        yield "not compared: the steps return none"
    elif outputs.equal:
        yield f"equal bit for bit: {count(outputs.compared)} of {', '.join(outputs.kinds)}"


def _counts(result: OverheadResult) -> Iterable[str]:
    counts = result.turns.counts
    for side, found in counts.first_differences.items():
        yield f"DIFFERENT: {side}, {found}"
    if counts.equal:
        steps = ", ".join(f"{count(made)} {side}" for side, made in counts.steps.items())
        made = counts.per_step(result.turns.baseline)
        launches = "launches not known" if made is None else f"{made:g} launches in each"
        yield f"steps made, warm-up included: {steps}; {launches}"


def _recorder(recorder: dict[str, Any] | str) -> Iterable[str]:
    if isinstance(recorder, str):
        yield recorder
        return
    behind = recorder["drained_behind_turn_ns"]
    yield (
        f"{recorder['stamps']}, {recorder['state']}: {count(recorder['steps'])} steps, "
        f"{count(recorder['launches'])} launches of all ranks recorded, "
        f"{count(recorder['lost_launches'])} lost, {size(recorder['bytes'])} written to a temporary folder"
        + ("" if behind is None else f"; the last of a turn {us(behind, 0)} us behind its end")
    )


def code_lines(kernels: tuple[CodeComparison, ...], screen: Screen) -> list[str]:
    """Off beside absent, a line for each kernel."""
    lines = []
    for kernel in kernels:
        name = screen.shown(kernel.kernel)
        text = (
            f"{name}: off and absent are the same, {kernel.code_bytes:,} bytes"
            if kernel.difference is None
            else f"DIFFERENT: {name}, {screen.shown(kernel.difference)}"
        )
        lines += labelled("code", text, screen)
    return lines
