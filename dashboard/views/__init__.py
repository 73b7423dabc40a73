"""The views, each a :class:`View` in a file or folder of its own; they know nothing of each other."""

from __future__ import annotations

from musetrace.dashboard.views import (
    compare_view,
    idle,
    launches,
    op_view,
    overlap,
    overview,
    path_view,
    stops,
    timeline_view,
)

VIEWS = (
    overview.VIEW,
    op_view.VIEW,
    timeline_view.VIEW,
    idle.VIEW,
    overlap.VIEW,
    stops.VIEW,
    path_view.VIEW,
    launches.VIEW,
    compare_view.VIEW,
)
