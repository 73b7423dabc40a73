"""What a comparison says: the sentences of ``musetrace compare``, and the cost of stamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import html

from musetrace.analysis import Comparison
from musetrace.analysis.comparing.launch_series import HOST_LAUNCH, STEP
from musetrace.analysis.spans.run_like import RunLike
from musetrace.cli.compare.sentences import (
    observed_sentences,
    only_sentence,
    outputs_sentence,
    rule_sentence,
    saved_sentence,
    share_text,
)
from musetrace.wording.numbers import us

OFF = "off"
_DECIMALS = 2
_US = "\N{MICRO SIGN}s"


def head_parts(found: Comparison) -> list[Any]:
    """What is unlike in the runs, and what is to be known of the comparison."""
    warnings = html.Ul([html.Li(warning) for warning in found.warnings], className="warnings")
    facts = [
        html.Span(["ranks ", ", ".join(map(str, found.ranks))]),
        html.Span(f"outputs: {outputs_sentence(found.outputs)}"),
        *(html.Span(sentence) for sentence in observed_sentences(found)),
    ]
    return [*([warnings] if found.warnings else []), html.Div(facts, className="facts")]


def rule_parts(found: Comparison) -> html.P:
    """How verdicts are made."""
    return html.P(rule_sentence(found), className="note")


def saved_parts(found: Comparison) -> list[Any]:
    """What became of the time that ops saved."""
    sentences = [saved_sentence(row) for row in found.saved.to_pylist()]
    return [html.P(sentence) for sentence in sentences] or [
        html.P("No op became faster for certain: no time was saved that could have turned into waiting.")
    ]


def only_parts(found: Comparison) -> list[Any]:
    """Ops that one run does not have."""
    sentences = [only_sentence(row) for row in found.only.to_pylist()]
    return [html.Ul([html.Li(sentence) for sentence in sentences], className="note")] if sentences else []


def stamp_parts(a: RunLike, b: RunLike, found: Comparison) -> list[Any]:
    """What stamps cost and the proof that they change nothing, where one of the runs has none."""
    stamps = [run.manifest.get("stamps") for run in (a, b)]
    off = [kept == OFF for kept in stamps]
    if off[0] == off[1]:
        kept = "no stamps" if off[0] else f"stamps ({' and '.join(dict.fromkeys(map(str, stamps)))})"
        return [
            html.P(
                f"Both runs have {kept}. Beside a run of the same program recorded with --stamps off, this "
                "place says what the stamps cost.",
                className="note",
            )
        ]
    sign, which = (1, "B") if off[0] else (-1, "A")
    rows = [row for row in found.times.to_pylist() if (row["what"], row["of"]) == (STEP, "host")]
    rows += [row for row in found.times.to_pylist() if row["what"] == HOST_LAUNCH]
    costs = [html.Li(cost_words(row, sign)) for row in rows]
    return [
        html.P(f"{which} has stamps, the other has none. By the host's clock the stamps cost"),
        html.Ul(costs or [html.Li("nothing that is known: the host timed no step in both")]),
        html.P(f"Outputs: {outputs_sentence(found.outputs)}."),
        html.P(
            "Two recordings differ by more than their stamps: musetrace overhead interleaves both builds on "
            "one device and compares their machine code.",
            className="note",
        ),
    ]


def cost_words(row: Mapping[str, Any], sign: int) -> str:
    """The cost of stamps in one time; ``sign`` is 1 where B has them."""
    cost = sign * row["difference_ns"]
    low, high = sorted((sign * row["low_ns"], sign * row["high_ns"]))
    share = share_text({**row, "share": None if row["share"] is None else sign * row["share"]})
    of_step = f"a step of {us(row['a_ns'], _DECIMALS)} {_US}"
    what = of_step if row["what"] == STEP else f"a launch of {row['of']}"
    verdict = "" if row["verdict"] in ("faster", "slower") else f": {row['verdict']}"
    return (
        f"{us(cost, _DECIMALS)} {_US} of {what} ({share} %), "
        f"95 % {us(low, _DECIMALS)} to {us(high, _DECIMALS)}{verdict}"
    )
