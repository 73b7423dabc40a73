"""The tables behind the views, as files."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from clients import OWN
from flask.testing import FlaskClient

from musetrace import analysis
from musetrace.analysis.gaps.one_stop import arrival_histogram, block_arrivals
from musetrace.dashboard import create_app
from musetrace.dashboard.api.tables import QUESTIONS
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.scope import Scope
from musetrace.known_bytes import known_bytes
from musetrace.store import Run


@pytest.fixture(scope="module")
def client(decode: Run) -> FlaskClient:
    return create_app(OpenRuns([decode])).server.test_client()


@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_every_table_can_be_taken_as_csv_and_arrow(client: FlaskClient, decode: Run, question: str) -> None:
    table = QUESTIONS[question](decode, Scope("sliding").arguments, {})
    arrow = client.get(f"/api/table/{question}.arrow?kind=sliding", headers=OWN)
    assert pa.ipc.open_file(arrow.data).read_all().equals(table)
    rows = list(
        csv.DictReader(io.StringIO(client.get(f"/api/table/{question}.csv?kind=sliding", headers=OWN).text))
    )
    assert len(rows) == table.num_rows
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type):
            assert [row[name] for row in rows] == ["" if v is None else str(v) for v in column.to_pylist()]


def test_a_path_of_steps_and_a_what_if_are_those_of_the_view(client: FlaskClient, decode: Run) -> None:
    def taken(question: str, query: str) -> pa.Table:
        answer = client.get(f"/api/table/{question}.arrow?kind=sliding&{query}", headers=OWN)
        return pa.ipc.open_file(answer.data).read_all()

    assert taken("critical_path", "of=step").equals(analysis.critical_path(decode, whole_steps=True).parts)
    changes = ["gemm2=-10%", "stop3=gone"]
    together = analysis.what_if(decode, changes, together=True, layer_kind="sliding")
    assert taken("what_if", "what=gemm2%3D-10%25%2Cstop3%3Dgone").equals(together)


def test_a_stops_table_is_of_the_stop_that_is_named(client: FlaskClient, decode: Run) -> None:
    for question, ask in (("block_arrivals", block_arrivals), ("arrival_histogram", arrival_histogram)):
        answer = client.get(f"/api/table/{question}.arrow?kind=global&step=1&stop=stop3", headers=OWN)
        expected = ask(decode, stop="stop3", layer_kind="global", step=1)
        assert pa.ipc.open_file(answer.data).read_all().equals(expected)
        refused = client.get(f"/api/table/{question}.csv?stop=nope", headers=OWN)
        assert refused.status_code == 400
        assert refused.text.startswith("no stop 'nope' in this run: it has ")


def test_the_bandwidths_are_those_that_the_view_shows(gpu_slice: Run) -> None:
    client = create_app(OpenRuns([gpu_slice])).server.test_client()
    answer = client.get("/api/table/roofline.arrow?kind=sliding", headers=OWN)
    expected = analysis.roofline(gpu_slice, layer_kind="sliding", moved=known_bytes(gpu_slice))
    assert expected.num_rows > 10
    assert pa.ipc.open_file(answer.data).read_all().equals(expected)


def test_a_table_that_there_is_not_is_refused(client: FlaskClient) -> None:
    for name in ("nope.csv", "idle.exe", "__class__.csv"):
        assert client.get(f"/api/table/{name}", headers=OWN).status_code == 404
