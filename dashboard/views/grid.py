"""Tables that sort and filter: AG Grid with the page's colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dash_ag_grid

# A grid of so many rows grows with them; a longer one scrolls.
_MOST_ROWS_AT_ONCE = 18


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        field: of the rows.
        title: above it.
        number: None for text, else how many decimals a number has; numbers are set flush right. None in a row
            is shown as a dash.
        width: in pixels; None lets it grow.
        tip: what the column says, shown on hover.
        longest: of a number that is also drawn as a bar behind it: the value that fills the cell.
    """

    field: str
    title: str
    number: int | None = None
    width: int | None = None
    tip: str = ""
    longest: float | None = None

    def definition(self) -> dict[str, Any]:
        """As AG Grid takes it. Its functions are those of assets/grid.js."""
        entry: dict[str, Any] = {
            "field": self.field,
            "headerName": self.title,
            "headerTooltip": self.tip or self.title,
        }
        if self.number is not None:
            entry |= {
                "headerClass": "ag-right-aligned-header",
                "filter": "agNumberColumnFilter",
                "cellClass": "ag-right-aligned-cell number",
                "valueFormatter": {"function": f"musetraceNumber(params.value, {self.number})"},
            }
        if self.longest:
            entry["cellStyle"] = {"function": f"musetraceBar(params.value, {self.longest!r})"}
        if self.width is None:
            return entry | {"flex": 1, "minWidth": 120}
        return entry | {"width": self.width}


def grid(
    component_id: str | dict[str, str],
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]] = (),
    selected: bool = False,
) -> Any:
    """A table; a callback may give ``rowData``. With ``selected`` a click sets ``selectedRows``, one row."""
    options: dict[str, Any] = {
        "domLayout": "autoHeight" if len(rows) <= _MOST_ROWS_AT_ONCE else "normal",
        "rowHeight": 28,
        "rowBuffer": 2,
        "headerHeight": 30,
        "suppressCellFocus": False,
        "suppressDragLeaveHidesColumns": True,
        "tooltipShowDelay": 400,
        "animateRows": False,
    }
    if selected:
        options["rowSelection"] = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}
    return dash_ag_grid.AgGrid(
        id=component_id,
        columnDefs=[column.definition() for column in columns],
        rowData=[dict(row) for row in rows],
        defaultColDef={"sortable": True, "resizable": True, "filter": "agTextColumnFilter"},
        dashGridOptions=options,
        className="grid" if len(rows) <= _MOST_ROWS_AT_ONCE else "grid grid-long",
        # Cells are text: nothing in a name is taken for markup.
        dangerously_allow_code=False,
    )
