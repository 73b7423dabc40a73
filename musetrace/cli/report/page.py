"""A report as a document: the conditions of the run first, its sections, what is missing last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from musetrace import analysis
from musetrace.cli.conditions import loss_summary, loss_texts, made_of, stamped_by
from musetrace.cli.output import Screen
from musetrace.cli.report.answers import Answers
from musetrace.cli.report.document import Block, Document, Listing, Section, Sentence
from musetrace.cli.report.questions import QUESTIONS


def report_document(answers: Answers, screen: Screen, *, lists_pages: bool = True) -> Document:
    """The whole report; ``screen`` decides which columns its tables have.

    ``lists_pages``: the pages that tell more are listed, for forms that do not name them beside each section.
    """
    run = answers.run
    sections = [_conditions(answers, screen)]
    if not answers.launches.num_rows:
        nothing = Sentence("no launch left a stamp: there are only host times to report")
        sections.append(Section("nothing", "", "", [nothing]))
    for question in QUESTIONS:
        sections += [replace(one, page=question.page) for one in question.show(answers, screen)]
    sections += [*([_pages(sections)] if lists_pages else []), _losses(answers, screen)]
    return Document(f"musetrace report: {screen.shown(run.path)} is {run.verdict}", sections)


def _conditions(answers: Answers, screen: Screen) -> Section:
    run, scope = answers.run, answers.scope
    chosen = {"kind": scope.kind, "rank": scope.rank, "step": scope.step}
    only = ", ".join(f"{name} {screen.shown(value)}" for name, value in chosen.items() if value is not None)
    rest = [*stamped_by(run, screen), ("losses", loss_summary(run))]
    if only:
        rest.append(("only", only))
    if told := answers.thresholds.sentence():
        rest.append(("told", told))
    return Section("conditions", "", "", [Listing(made_of(run, screen), most_lines=2), Listing(rest)])


def _pages(sections: Sequence[Section]) -> Section:
    names = ", ".join(dict.fromkeys(section.page for section in sections if section.page))
    text = f"musetrace explain NAME tells how a section is made and when it lies: {names}"
    return Section("explain", "more", "", [Sentence(text, "  ")])


def _losses(answers: Answers, screen: Screen) -> Section:
    texts = loss_texts(answers.run, screen, all_kinds=False)
    blocks: list[Block] = [text if indent is None else Sentence(text, indent) for text, indent in texts]
    return Section("losses", "losses", "", [*blocks, *map(Sentence, quality(answers))])


def quality(answers: Answers) -> list[str]:
    """What is to be known of the spans that the numbers are made of, a sentence each."""
    blocks = answers.table("blocks")
    ignored, below = (of(blocks) for of in (analysis.ignored_spans, analysis.below_tick_spans))
    sentences = [f"{ignored:,} spans with a flag are in none of these numbers"] if ignored else []
    if below:
        sentences.append(
            f"{below:,} spans are shorter than the clock's tick of {analysis.tick_ns(answers.run):,} ns: "
            "they count with the length that was stamped"
        )
    return sentences
