"""Two runs beside each other: what is faster, where the time went, in what they are not alike."""

from __future__ import annotations

from musetrace.dashboard.views.compare_view.callbacks import register
from musetrace.dashboard.views.compare_view.layout import layout
from musetrace.dashboard.views.view import View

VIEW = View("compare", "Compare", layout, register)
