"""Ids of the components of the view."""

from __future__ import annotations

SAYS, CONTENT, FILES = "compare-says", "compare-content", "compare-files"
OF_SPANS = "compare-of-spans"  # what needs spans in both runs
TIMES, TIME_ROWS = "compare-times", "compare-time-rows"
OPS, OP_ROWS, OP_NOTE = "compare-ops", "compare-op-rows", "compare-op-note"
SKEW, SKEW_ROWS = "compare-skew", "compare-skew-rows"
IDLE, BLOCK_ROWS, SAVED = "compare-idle", "compare-block-rows", "compare-saved"
STAMPS, LINES, LINES_NOTE = "compare-stamps", "compare-lines", "compare-lines-note"
