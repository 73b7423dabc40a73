"""Ids of the components of the view."""

from __future__ import annotations

SAYS, CONTENT, FILES = "compare-says", "compare-content", "compare-files"
OF_SPANS = "compare-of-spans"  # what needs spans in both runs
TIMES, RULE = "compare-times", "compare-rule"
NUMBERS = "compare-numbers"  # the table that is picked, and the field of the picker below
TABLE, OF_TIMES, OF_OPS, OF_BLOCKS, OF_STOPS = "numbers", "times", "ops", "blocks", "stops"
OPS, OP_ONLY, OP_NOTE = "compare-ops", "compare-op-only", "compare-op-note"
IDLE, SAVED = "compare-idle", "compare-saved"
STAMPS, LINES, LINES_NOTE = "compare-stamps", "compare-lines", "compare-lines-note"
