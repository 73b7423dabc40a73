"""What a tree of components says, as plain functions return it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def parts_of(tree: Any) -> Iterator[Any]:
    """Every component and text of a tree, in order."""
    if isinstance(tree, (list, tuple)):
        for part in tree:
            yield from parts_of(part)
    elif tree is not None:
        yield tree
        yield from parts_of(getattr(tree, "children", None))


def text_of(tree: Any) -> str:
    """All texts of a tree, one behind the other."""
    return " ".join(str(part) for part in parts_of(tree) if isinstance(part, (str, int, float)))


def links_of(tree: Any) -> dict[str, str]:
    """Address by text of every link."""
    return {text_of(part.children): part.href for part in parts_of(tree) if getattr(part, "href", None)}
