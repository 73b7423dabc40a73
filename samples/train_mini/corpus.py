"""Text that comes with Python: the help on its language, and the documentation of its standard library."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

# Parts of the library that nobody reads, or that are not in every installation.
_LEFT_OUT = ("site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "__pycache__")


def texts() -> Iterator[str]:
    """One text each for a topic or a module, in a fixed order; about 2 MB with Python 3.11."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(
        path
        for path in library.rglob("*.py")
        if not set(path.relative_to(library).parts[:-1]) & set(_LEFT_OUT)
    )
    yield from (topics[name] for name in sorted(topics))
    yield from filter(None, map(documentation, files))


def documentation(path: Path) -> str:
    """The docstrings of a module, each behind the name of what it documents."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError):
        return ""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            name = path.stem if isinstance(node, ast.Module) else node.name
            if text:
                found.append(f"{name}: {text}")
    return "\n\n".join(found)
