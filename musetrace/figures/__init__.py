"""Figures: pure functions from tables and spans to Plotly figures. They know no page.

The dashboard and ``musetrace report --html`` show the same ones. They need plotly (``musetrace[dashboard]``):
whoever also works without it imports them only when it draws.
"""

from __future__ import annotations
