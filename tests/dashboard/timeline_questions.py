"""How tests ask the timeline's routes, and what the store tells of the same spans."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from flask import Flask
from flask.testing import FlaskClient

from musetrace.dashboard.api import blueprints
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.store import Run


def client_of(*runs: Any) -> FlaskClient:
    app = Flask("test")
    for blueprint in blueprints(OpenRuns(runs)):
        app.register_blueprint(blueprint)
    return app.test_client()


def ask(client: FlaskClient, route: str, code: int = 200, **fields: object) -> Any:
    answer = client.get(f"/api/{route}", query_string=fields)
    assert answer.status_code == code, answer.get_data(as_text=True)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.mimetype == "application/json"
    return json.loads(answer.data)


def ask_window(client: FlaskClient, **fields: object) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Header and arrays, taken apart as the page does it."""
    answer = client.get("/api/window", query_string={"width": 300, "height": 100, **fields})
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert (answer.mimetype, answer.headers["Cache-Control"]) == ("application/octet-stream", "no-store")
    (length,) = struct.unpack_from("<I", answer.data)
    header = json.loads(answer.data[4 : 4 + length])
    at, arrays = 4 + length, {}
    for array in header["arrays"]:
        assert at % 8 == 0
        dtype = np.dtype(array["dtype"]).newbyteorder("<")
        arrays[array["name"]] = np.frombuffer(answer.data, dtype, array["length"], at)
        at += -(-dtype.itemsize * array["length"] // 8) * 8
    assert at == len(answer.data)
    return header, arrays


def spans_table(run: Run) -> list[dict[str, Any]]:
    """All spans as the store tells them, with their place in the step."""
    found = []
    for rank in run.ranks:
        for step in run.step_ids(rank):
            rows = run.table("spans", rank=rank, step=step).to_pylist()
            found += [{**row, "id": place} for place, row in enumerate(rows)]
    return found


def origin_ns(run: Run) -> int:
    return min(base for rank in run.ranks for base in run.steps(rank)["base_ns"].to_pylist())
