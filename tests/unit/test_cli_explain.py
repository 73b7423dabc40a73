"""musetrace explain: a page for every question, and pages that say only what can be typed."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shlex
from pathlib import Path

import pytest

from musetrace import analysis
from musetrace.cli import main
from musetrace.cli.explain import name_of, pages
from musetrace.cli.report.questions import QUESTIONS
from musetrace.cli.verbs import VERBS, load_verb
from tests.sample_commands import commands

DOCS = Path(__file__).parents[2] / "musetrace" / "docs"
Out = pytest.CaptureFixture[str]

# Questions that are told on the page of another.
PAGE_OF = {
    "critical_spans": "critical_path",
    "utilisation": "overlap",
    "what_if": "critical_path",
    "what_ifs": "critical_path",
    "idle_after": "idle",
    "idle_blocks": "idle",
    "idle_examples": "idle",
    "launch_strip": "launches",
    "launch_times": "launches",
    "step_times": "steps",
    "step_parts": "steps",
    "step_histogram": "steps",
    "outlier_steps": "steps",
    "step_growth": "steps",
    "step_lengths": "steps",
}
MOST_LINES, LONGEST_LINE = 60, 132


def public_questions() -> list[str]:
    """The functions of ``musetrace.analysis`` that take a run and give a table or a comparison."""
    found = []
    for name in analysis.__all__:
        function = getattr(analysis, name)
        if inspect.isfunction(function) and next(iter(inspect.signature(function).parameters)) in (
            "run",
            "a",
        ):
            returned = inspect.signature(function).return_annotation
            found += [name] if returned in ("pa.Table", "Comparison", "CriticalPath") else []
    return found


def questions_pages() -> set[str]:
    return {PAGE_OF.get(question, question) for question in public_questions()}


def test_every_public_question_has_a_page() -> None:
    questions = public_questions()
    assert {"idle", "findings", "compare", "clocks", "stops"} <= set(questions)
    assert questions_pages() - set(pages()) == set()
    assert set(PAGE_OF) <= set(questions)


def test_every_section_of_the_report_has_a_page() -> None:
    assert {question.page for question in QUESTIONS} - set(pages()) == set()


@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.md")))
def test_a_page_says_what_it_is_about_and_fits_a_screen(name: str) -> None:
    lines = (DOCS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= MOST_LINES or name not in questions_pages()
    assert max(map(len, lines)) <= LONGEST_LINE
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.md")))
def test_every_command_of_a_page_parses(name: str) -> None:
    for line in commands(DOCS / f"{name}.md"):
        words = shlex.split(line.partition(" >")[0])
        assert words[0] == "musetrace", line
        command = load_verb(words[1])
        parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        command.add_arguments(parser)
        parser.parse_args(words[2:])


@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.md")))
def test_every_name_of_a_page_exists(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for module, function in re.findall(r"`musetrace(\.analysis)?\.(\w+)\(", text):
        owner = analysis if module else __import__("musetrace")
        assert hasattr(owner, function), f"musetrace{module}.{function}"
    for verb, argument in re.findall(r"`musetrace (\w+)(?: (\w+))?[^`]*`", text):
        assert verb in VERBS, verb
        if verb == "explain" and argument and argument != "NAME":
            assert argument in pages(), argument


def test_a_page_is_printed_as_it_is(capsys: Out) -> None:
    assert main(["explain", "findings"]) == 0
    assert capsys.readouterr().out == (DOCS / "findings.md").read_text(encoding="utf-8")
    assert main(["explain", "Block-Busy", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["question"] == "block_busy"
    assert told["text"] == (DOCS / "block_busy.md").read_text(encoding="utf-8")
    assert told["text"].startswith(f"# {told['title']}\n")


def test_without_a_question_all_are_listed(capsys: Out) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(pages())]] == sorted(
        path.stem for path in DOCS.glob("*.md")
    )
    assert main(["explain", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["questions"]) == set(pages())


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("ring-ahed", "did you mean ring_ahead"),
        ("busy", "did you mean block_busy"),
        ("../findings", "did you mean findings"),
        ("\x1b[2J", "there are "),
    ],
)
def test_an_unknown_question_is_one_line_with_near_names(capsys: Out, asked: str, hint: str) -> None:
    assert main(["explain", asked]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert hint in said
    assert said.count("\n") == 1
    assert said[:-1].isprintable()


@pytest.mark.parametrize(
    ("section", "page"),
    [
        ("loads", "ring_ahead"),
        ("What to fix first", "findings"),
        ("loads_ahead", "ring_ahead"),
        ("blocks", "block_busy"),
    ],
)
def test_a_section_of_the_report_leads_to_its_page(section: str, page: str) -> None:
    assert name_of(section, list(pages())) == page
