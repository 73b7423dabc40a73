"""What a view is: a page of its own under a name, made from a run and the address bar's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dash import Dash

from musetrace.dashboard.open_runs import OpenRuns, RunRef


@dataclass(frozen=True)
class Page:
    """A view of a run.

    Attributes:
        body: what is shown; drawn quickly, since callbacks fill the graphs and tables.
        fields: what the pickers with an id ``ids.field(name)`` are set to.
        defaults: what they would be set to without a query; such values are left out of the address.
    """

    body: Any
    fields: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """One entry of the navigation.

    Attributes:
        name: in the address, ``/name``.
        title: in the navigation.
        layout: the page of a run for a query; values that the run does not have fall back to the default.
        register: connects the callbacks. They take ``Input(ids.RUN, "data")`` (``RunRef.of``),
            ``Input(ids.THEME, "data")`` and ``Input(ids.field(name), "value")``, and are called once when the
            page appears.
    """

    name: str
    title: str
    layout: Callable[[OpenRuns, RunRef, Mapping[str, str]], Page]
    register: Callable[[Dash, OpenRuns], None]
