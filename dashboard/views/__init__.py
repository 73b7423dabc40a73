"""The views, each a :class:`View` in a file or folder of its own; they know nothing of each other."""

from __future__ import annotations

from musetrace.dashboard.views import compare_view, lanes_view, op_view, path_view, timeline_view

VIEWS = (op_view.VIEW, timeline_view.VIEW, lanes_view.VIEW, path_view.VIEW, compare_view.VIEW)
