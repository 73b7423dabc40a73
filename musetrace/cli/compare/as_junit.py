"""A comparison as JUnit XML, for a CI that shows tests."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any
from xml.etree import ElementTree

from musetrace.analysis import Comparison
from musetrace.analysis.comparing.difference import CANNOT_TELL
from musetrace.cli.compare.limit import OUTPUTS, Limit, limited_rows
from musetrace.cli.compare.sentences import outputs_sentence
from musetrace.cli.text import shown
from musetrace.wording.numbers import percent

_Named = list[tuple[tuple[str, ...], dict[str, Any]]]


def junit(a: str, b: str, found: Comparison, limit: Limit, recorded_at: object = None) -> str:
    """One test case for each step, launch and op, and one for the outputs; a failure for what may not be.

    What cannot be told is skipped, with the reason. Warnings are in the suite's output. The time of a case is
    that of B, in seconds; ``recorded_at`` is when B was recorded.
    """
    rows = [] if limit.share is None else list(limited_rows(found))
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", name=shown(f"musetrace compare {a} {b}"))
    failed = sum(limit.is_passed(row) for _, row in rows) + limit.outputs_fail(found)
    counts = {"tests": len(rows) + limit.same_outputs, "failures": failed, "errors": 0}
    counts["skipped"] = sum(row["verdict"] == CANNOT_TELL for _, row in rows)
    for name, number in counts.items():
        suite.set(name, str(number))
        if name != "skipped":  # which Jenkins' schema does not have there
            suites.set(name, str(number))
    for element in (suites, suite):
        element.set("time", _seconds(sum(row["b_ns"] for _, row in rows)))
    with suppress(TypeError, ValueError):
        suite.set("timestamp", datetime.fromisoformat(str(recorded_at)).isoformat(timespec="seconds"))
    _add_rows(suite, rows, limit)
    if limit.same_outputs:
        _add_outputs(suite, found, limit)
    output = ElementTree.SubElement(suite, "system-out")
    output.text = "\n".join([f"outputs: {outputs_sentence(found.outputs)}", *map(shown, found.warnings)])
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_rows(suite: ElementTree.Element, rows: _Named, limit: Limit) -> None:
    for name, row in rows:
        case = ElementTree.SubElement(
            suite, "testcase", classname=shown(name[0]), name=shown(" ".join(name[1:]))
        )
        case.set("time", _seconds(row["b_ns"]))
        if limit.is_passed(row):
            failure = ElementTree.SubElement(case, "failure", type="slower", message=sentence(row))
            failure.text = f"allowed: {percent(limit.share)}"
        elif row["verdict"] == CANNOT_TELL:
            ElementTree.SubElement(case, "skipped", message=sentence(row))


def _add_outputs(suite: ElementTree.Element, found: Comparison, limit: Limit) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=OUTPUTS, name="equal bit for bit", time="0")
    if limit.outputs_fail(found):
        ElementTree.SubElement(case, "failure", type=OUTPUTS, message=outputs_sentence(found.outputs))


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.9f}"


def _all_rows(row: dict[str, Any]) -> str:
    if row["certain_low_ns"] is None:
        return "too few steps for an interval of all rows together"
    return f"of all rows together within {row['certain_low_ns']:+} and {row['certain_high_ns']:+} ns"


def sentence(row: dict[str, Any]) -> str:
    """A difference in words, in ns."""
    off = "not known" if row["uncertainty_ns"] is None else row["uncertainty_ns"]
    return (
        f"{row['verdict']}: {row['a_ns']} ns in A, {row['b_ns']} ns in B, {row['difference_ns']:+} ns "
        f"({percent(row['share'])}), 95 % within {row['low_ns']:+} and {row['high_ns']:+} ns, "
        f"{_all_rows(row)}, clocks +- {off} ns"
    )
