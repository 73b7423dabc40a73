"""Ids of the components of the view."""

from __future__ import annotations

from dash import ALL

PARTS, NOTE, FILES = "path-parts", "path-note", "path-files"
# Tables, which callbacks make, and what they stand in.
EDGES, EDGE_ROWS = "path-edges", "path-edge-rows"
ROWS, BEST = "path-rows", "what-best"
STRIP, WHICH, STRETCH, STRETCHES = "path-strip", "path-which", "path-stretch", "path-stretches"
LEVERS, NAMES, RANKED, RESET = "what-levers", "what-names", "what-ranked", "what-reset"
LIVE, DONE, BAR, RESULT = "what-live", "what-done", "what-bar", "what-result"

OPS = {"type": "what-op", "at": ALL}
PERCENTS = {"type": "what-percent", "at": ALL}
WAITS = {"type": "what-waits", "at": ALL}
