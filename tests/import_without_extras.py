"""Imports the package and asks every verb for its help while torch, triton, dash and plotly are refused.

tests/unit/test_imports.py runs it on the installed package, .ci/run on an unpacked wheel:

    python tests/import_without_extras.py [FOLDER]      FOLDER: where musetrace must come from
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import io
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

REFUSED = {"torch", "dash", "plotly", "flask", "transformers", "triton"}
NEEDS_AN_EXTRA = {
    "musetrace.muse",
    "musetrace.dashboard",
    "musetrace.figures",
    "musetrace.overhead.built_in",
    "musetrace.triton",
}
VERBS = ("record", "report", "explain", "compare", "view", "overhead", "probe", "info", "check")


class Refuse(importlib.abc.MetaPathFinder):
    """Makes the refused packages look as if they were not installed."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Raises for a refused package, leaves all others to the next finder."""
        if fullname.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {fullname!r} (refused by this test)", name=fullname)


def module_names(package: ModuleType) -> Iterator[str]:
    """The names of all modules below a package but those that need an extra, depth first."""
    # Its own folder only: in an editable install the package's path also holds the root of the clone.
    folder = Path(str(package.__file__)).parent
    for info in pkgutil.iter_modules([str(folder)], package.__name__ + "."):
        if info.name in NEEDS_AN_EXTRA or info.name.endswith(".__main__"):
            continue
        yield info.name
        if info.ispkg:
            yield from module_names(importlib.import_module(info.name))


def printed(*arguments: str) -> str:
    """What `musetrace ARGUMENTS` prints."""
    from musetrace.cli import main

    lines = io.StringIO()
    with contextlib.redirect_stdout(lines):
        try:
            code = main(list(arguments))
        except SystemExit as stop:
            code = stop.code
    if code not in (0, None):
        raise AssertionError(f"musetrace {' '.join(arguments)} ended with {code}")
    return lines.getvalue()


def run(expected_folder: str | None) -> None:
    """Raises on the first thing that does not work without the extras."""
    sys.meta_path.insert(0, Refuse())
    import musetrace

    origin = Path(str(musetrace.__file__)).resolve()
    if expected_folder is not None and Path(expected_folder).resolve() not in origin.parents:
        raise AssertionError(f"musetrace came from {origin}, not from {expected_folder}")
    names = ["musetrace", *module_names(musetrace)]
    for name in names:
        importlib.import_module(name)
    for verb in VERBS:
        if f"musetrace {verb}" not in printed(verb, "--help"):
            raise AssertionError(f"musetrace {verb} --help does not say how the verb is called")
    if "What to fix first" not in printed("explain", "findings"):
        raise AssertionError("the pages of musetrace explain are not in the package")
    if loaded := REFUSED & set(sys.modules):
        raise AssertionError(f"loaded in spite of the refusal: {sorted(loaded)}")
    print(f"{len(names)} modules imported and {len(VERBS)} verbs asked, without {', '.join(sorted(REFUSED))}")


if __name__ == "__main__":
    run(sys.argv[1] if len(sys.argv) > 1 else None)
