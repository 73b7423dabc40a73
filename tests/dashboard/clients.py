"""Who asks the application in the tests: its own page, and clients that keep cookies."""

from __future__ import annotations

import re
import urllib.request

from dash import Dash

OWN = {"Host": "127.0.0.1:8050"}


def opener() -> urllib.request.OpenerDirector:
    """A client that keeps cookies, as a browser does."""
    return urllib.request.build_opener(urllib.request.HTTPCookieProcessor())


def urls(app: Dash) -> list[str]:
    """A URL of every registered route, and a few real ones behind the general routes."""
    found = [re.sub(r"<[^>]+>", "x", str(rule)) for rule in app.server.url_map.iter_rules()]
    return [
        *found,
        "/assets/style.css",
        "/assets/theme.js",
        "/api/table/idle.csv",
        "/api/table/nope.csv",
        "/_dash-component-suites/plotly/package_data/plotly.min.js",
    ]
