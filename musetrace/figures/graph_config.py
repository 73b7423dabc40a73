"""How every graph behaves in a page."""

from __future__ import annotations

from typing import Any

# Plotly's own defaults offer to upload the chart.
GRAPH_CONFIG: Any = {
    "displaylogo": False,
    "plotlyServerURL": "",
    "responsive": True,
    "scrollZoom": False,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud", "sendDataToCloud"],
    "toImageButtonOptions": {"format": "svg", "filename": "musetrace"},
}
