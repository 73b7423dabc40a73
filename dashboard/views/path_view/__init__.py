"""What held up the end of a launch or a step, and what a change would bring."""

from __future__ import annotations

from musetrace.dashboard.views.path_view.callbacks import register
from musetrace.dashboard.views.path_view.layout import layout
from musetrace.dashboard.views.view import View

VIEW = View("path", "Path & what-if", layout, register)
