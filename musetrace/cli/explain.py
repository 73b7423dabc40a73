"""``musetrace explain``: how an answer is made, what it says, and when it lies."""

from __future__ import annotations

import argparse
import difflib
from importlib.resources import files

from musetrace.cli.command import EXIT_COMPLETE, Command, add_json_option
from musetrace.cli.output import print_json, print_lines, shows_unicode
from musetrace.cli.text import shown
from musetrace.errors import UsageError

_SUFFIX = ".md"


class ExplainCommand(Command):
    """One page of text for each question; without one, the list of all."""

    name = "explain"
    help = "print how an answer is made and when it lies"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the question."""
        parser.add_argument("question", nargs="?", help="a question; all are listed without one")
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the page, or the list."""
        found = pages()
        if args.question is None:
            titles = {name: title_of(text) for name, text in found.items()}
            if args.json:
                print_json({"questions": titles})
            else:
                print_lines(list_lines(titles))
            return EXIT_COMPLETE
        name = name_of(args.question, list(found))
        if args.json:
            print_json({"question": name, "title": title_of(found[name]), "text": found[name]})
        else:
            print_lines(_for_stdout(line) for line in found[name].splitlines())
        return EXIT_COMPLETE


def pages() -> dict[str, str]:
    """The text of every page, by the name of its question, in the order of the names."""
    folder = files("musetrace") / "docs"
    found = {
        entry.name.removesuffix(_SUFFIX): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(_SUFFIX)
    }
    return dict(sorted(found.items()))


def title_of(text: str) -> str:
    """The first line of a page, without its mark."""
    return text.partition("\n")[0].removeprefix("#").strip()


def name_of(question: str, names: list[str]) -> str:
    """The name that is meant, in any case and with dashes. Raises UsageError, with near names, for others."""
    name = question.strip().lower().replace("-", "_").replace(" ", "_")
    if name in names:
        return name
    of_section = pages_of_sections().get(name)
    if of_section in names:
        return of_section
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    near += [other for other in names if name and name in other and other not in near]
    hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(names)}"
    raise UsageError(f"no page on {question!r}: {hint}")


def pages_of_sections() -> dict[str, str]:
    """The page of each section of a report, by the section's name and by its key in JSON."""
    from musetrace.cli.report.questions import QUESTIONS
    from musetrace.cli.report.section_names import SECTION_NAMES

    by_key = {question.key: question.page for question in QUESTIONS}
    by_name = {name.replace(" ", "_"): by_key.get(key, "") for key, name in SECTION_NAMES.items()}
    return by_key | by_name


def list_lines(titles: dict[str, str]) -> list[str]:
    """A line for each page, then how to print one."""
    width = max(map(len, titles), default=0)
    lines = [f"{name:<{width}}  {_for_stdout(title)}" for name, title in titles.items()]
    return [*lines, "", "musetrace explain NAME prints one; reading_a_report is the one to begin with"]


def _for_stdout(line: str) -> str:
    return shown(line, ascii_only=not shows_unicode())
