"""A comparison as JUnit XML, for a CI that shows tests."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from musetrace.analysis import Comparison
from musetrace.analysis.difference import CANNOT_TELL
from musetrace.cli.compare_limit import Limit, limited_rows
from musetrace.cli.numbers import percent
from musetrace.cli.text import shown


def junit(a: str, b: str, found: Comparison, limit: Limit) -> str:
    """One test case for each step, launch and op; a failure for what passes the limit.

    What cannot be told is skipped, with the reason. Warnings are in the suite's output.
    """
    rows = list(limited_rows(found))
    suite = ElementTree.Element("testsuite", name=shown(f"musetrace compare {a} {b}"), tests=str(len(rows)))
    suite.set("failures", str(sum(limit.is_passed(row) for _, row in rows)))
    suite.set("errors", "0")
    suite.set("skipped", str(sum(row["verdict"] == CANNOT_TELL for _, row in rows)))
    for name, row in rows:
        case = ElementTree.SubElement(
            suite, "testcase", classname=shown(name[0]), name=shown(" ".join(name[1:])), time="0"
        )
        if limit.is_passed(row):
            failure = ElementTree.SubElement(case, "failure", type="slower", message=sentence(row))
            failure.text = f"allowed: {percent(limit.share)}"
        elif row["verdict"] == CANNOT_TELL:
            ElementTree.SubElement(case, "skipped", message=sentence(row))
    output = ElementTree.SubElement(suite, "system-out")
    output.text = "\n".join(map(shown, found.warnings))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def sentence(row: dict[str, Any]) -> str:
    """A difference in words, in ns."""
    return (
        f"{row['verdict']}: {row['a_ns']} ns in A, {row['b_ns']} ns in B, {row['difference_ns']:+} ns "
        f"({percent(row['share'])}), 95 % within {row['low_ns']:+} and {row['high_ns']:+} ns, "
        f"clocks +- {'not known' if row['uncertainty_ns'] is None else row['uncertainty_ns']} ns"
    )
