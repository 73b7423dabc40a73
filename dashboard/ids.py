"""Ids of the components that callbacks and tests name."""

from __future__ import annotations

URL = "url"
THEME = "theme"
THEME_TOGGLE = "theme-toggle"

KIND = "op-kind"
RANK = "op-rank"
STEP = "op-step"
OP_GRAPH = "op-graph"
OP_NOTE = "op-note"

LANE_STEP = "lane-step"
LANE_LAUNCH = "lane-launch"
LANE_ROWS = "lane-rows"
LANE_GRAPH = "lane-graph"
LANE_NOTE = "lane-note"
LANE_READOUT = "lane-readout"
