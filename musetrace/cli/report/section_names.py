"""What sections of a report are called when others refer to them, by the key of their question."""

from __future__ import annotations

SECTION_NAMES = {
    "steps": "steps",
    "step_parts": "parts of a step",
    "step_histogram": "spread of steps",
    "outlier_steps": "slow steps",
    "launches": "launches",
    "findings": "what to fix first",
    "ops": "timeline",
    "idle": "idle",
    "attribution": "waits",
    "stops": "stops",
    "arrivals": "arrivals",
    "loads_ahead": "loads",
    "blocks": "blocks",
    "critical_path": "critical path",
    "what_ifs": "what ifs",
    "what_if": "what if",
    "overlap": "overlap",
    "roofline": "roofline",
    "launch_edges": "edges of launches",
    "losses": "losses",
}
