"""Ids of the components that callbacks and tests name."""

from __future__ import annotations

URL = "url"
THEME = "theme"
THEME_TOGGLE = "theme-toggle"
TITLE = "title"

# What the page shows: {"path", "search", "view", "defaults", "fields"}; and of which run: RunRef.data().
SHOWN = "shown"
RUN = "run"
RUN_PICKER = "run-picker"
CONDITIONS = "conditions"
NAVIGATION = "navigation"
VIEW = "view"
POLL = "poll"


def field(name: str) -> dict[str, str]:
    """The id of the picker of a field of the address bar: its ``value`` and the address follow each other."""
    return {"type": "field", "name": name}


def field_selector(name: str) -> str:
    """The same for a style sheet or a test in the browser."""
    return f"""[id='{{"name":"{name}","type":"field"}}']"""
