"""Figures: pure functions from tables to Plotly figures. They read no run and know no page."""

from __future__ import annotations
