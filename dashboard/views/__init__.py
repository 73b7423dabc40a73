"""The views: modules with ``layout(run)`` and ``register(app, run)`` that know nothing of each other."""

from __future__ import annotations

from musetrace.dashboard.views import op_view

VIEWS = (op_view,)
