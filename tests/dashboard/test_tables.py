"""The tables behind the views, as files."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from clients import OWN
from flask.testing import FlaskClient

from musetrace import analysis
from musetrace.dashboard import create_app
from musetrace.dashboard.api.tables import QUESTIONS
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.scope import Scope
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


def test_a_table_that_there_is_not_is_refused(client: FlaskClient) -> None:
    for name in ("nope.csv", "idle.exe", "__class__.csv"):
        assert client.get(f"/api/table/{name}", headers=OWN).status_code == 404
