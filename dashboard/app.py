"""Makes the Dash application of runs. Nothing is global: two in one process know nothing of each other."""

from __future__ import annotations

from pathlib import Path

from dash import ClientsideFunction, Dash, Input, Output
from dash.exceptions import InvalidConfig
from flask import Response

from musetrace.dashboard import ids, router
from musetrace.dashboard.api import blueprints
from musetrace.dashboard.failure import sentence_of
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.page import page
from musetrace.dashboard.security import Access, guard, hosts_of
from musetrace.dashboard.views import VIEWS
from musetrace.errors import UsageError
from musetrace.figures.theme import style_sheet

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8050

_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="color-scheme" content="light dark">
<title>{%title%}</title>
{%favicon%}
{%css%}
<style>STYLE_SHEET</style>
</head>
<body>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>"""


def create_app(runs: OpenRuns, access: Access | None = None) -> Dash:
    """The application that shows runs.

    Args:
        runs: open runs; they are read while the application lives.
        access: who may ask; anybody at the default address unless given.

    Raises:
        UsageError: a ``DASH_*`` variable of the environment is in the way.
    """
    app = _new_app()
    app.server.debug = False
    app.layout = page(runs)
    choose_theme = ClientsideFunction("musetrace", "theme")
    app.clientside_callback(  # type: ignore[no-untyped-call]
        choose_theme, Output(ids.THEME, "data"), Input(ids.THEME_TOGGLE, "n_clicks")
    )
    router.register(app, runs, VIEWS)
    for view in VIEWS:
        view.register(app, runs)
    for blueprint in blueprints(runs):
        app.server.register_blueprint(blueprint)
    app.server.after_request(_read_file)
    # The hashes cover what the callbacks added, so they are taken last.
    guard(app.server, access or Access(hosts_of(DEFAULT_HOST, DEFAULT_PORT)), app.csp_hashes())
    return app


def _new_app() -> Dash:
    """A bare application. What is not given here, Dash and Flask take from the environment."""
    try:
        return _configured()
    except InvalidConfig as error:
        raise UsageError(
            "Dash refuses its settings because of DASH_URL_BASE_PATHNAME in the environment: unset it"
        ) from error


def _configured() -> Dash:
    return Dash(
        "musetrace.dashboard",
        server=True,
        assets_folder=str(Path(__file__).parent / "assets"),
        assets_external_path="",
        include_assets_files=True,
        serve_locally=True,
        compress=True,
        url_base_pathname=None,
        routes_pathname_prefix="/",
        requests_pathname_prefix="/",
        use_pages=False,
        pages_folder="",
        # Only one view is on the page at a time.
        suppress_callback_exceptions=True,
        enable_mcp=False,
        websocket_callbacks=False,
        add_log_handler=False,
        index_string=_INDEX.replace("STYLE_SHEET", style_sheet()),
        title="musetrace",
        update_title="",
        on_error=_on_error,
    )


def _read_file(answer: Response) -> Response:
    """An asset, read from its file: what compresses it would leave the file open."""
    if answer.direct_passthrough:
        answer.direct_passthrough = False
        answer.make_sequence()
    return answer


def _on_error(error: Exception) -> None:
    """A callback's own defect: logged, and the page stays as it was."""
    sentence_of(error)
