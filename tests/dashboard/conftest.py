"""Runs that the dashboard's tests look at."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from builders import build_run_from_text
from decode_run import LAYER, build_decode_run

from musetrace.job_table import JobTable
from musetrace.store import Run, open_run

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<b>bold</b>",
    "gemm<128,64>",
    "%{x}",
    "</script><script>alert(2)</script>",
    '<a href="http://evil.example/">a</a>',
    "&lt;b&gt;",
    "javascript:alert(3)",
    "<svg/onload=alert(4)>",
    "%{customdata[0]}",
    "a" * 200,
    "nul\x00 and \u202e turned",
)

# One block, one launch: every percentile is the one time that is written here.
TINY = """
r0 s0 l0 layer=0 sliding b0 w0 attention_load_k  1000000000 1000123457
r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000123461 1001234567
r0 s0 l0 layer=0 sliding b0 w4 stop1_wait_ranks  1001234577 1001300011
"""


@pytest.fixture(scope="session")
def decode_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of four blocks, three steps of six launches."""
    return build_decode_run(tmp_path_factory.mktemp("decode"))


@pytest.fixture(scope="session")
def decode(decode_path: Path) -> Run:
    return open_run(decode_path)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three spans."""
    return build_run_from_text(tmp_path_factory.mktemp("tiny"), TINY, blocks=1)


@pytest.fixture(scope="session")
def coarse_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of four blocks, one step, stamped by a clock that steps by 32 ns."""
    meta = {"clock": {"name": "globaltimer", "tick_ns": 32}}
    return build_decode_run(tmp_path_factory.mktemp("coarse"), steps=1, meta=meta)


@pytest.fixture(scope="session")
def hostile_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that want to be more than text, wherever a run has names."""
    table = JobTable.built_in()
    ops = list(dict.fromkeys(job.op for job in table.jobs))
    jobs = tuple(
        dataclasses.replace(
            job, name=f"{job.name} {HOSTILE[index % len(HOSTILE)]}", op=hostile_op(ops, job.op)
        )
        for index, job in enumerate(table.jobs)
    )
    schedule = {
        job.name: LAYER[old.name] for job, old in zip(jobs, table.jobs, strict=True) if old.name in LAYER
    }
    meta = {
        "device": {"name": HOSTILE[0], HOSTILE[1]: HOSTILE[2]},
        "model": {"name": HOSTILE[4]},
        "clock": {"name": HOSTILE[5], "tick_ns": HOSTILE[1]},
        "stamps": HOSTILE[3],
    }
    return build_decode_run(
        tmp_path_factory.mktemp("hostile"),
        kinds=(HOSTILE[2], HOSTILE[0]),
        steps=1,
        schedules={HOSTILE[2]: schedule, HOSTILE[0]: schedule},
        table=dataclasses.replace(table, jobs=jobs),
        meta=meta,
    )


@pytest.fixture(scope="session")
def hostile_names() -> tuple[str, ...]:
    return HOSTILE


def hostile_op(ops: list[str], op: str) -> str:
    return HOSTILE[ops.index(op)] if ops.index(op) < len(HOSTILE) else op


@pytest.fixture(scope="session")
def empty_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recording ended before the first launch."""
    return build_decode_run(tmp_path_factory.mktemp("empty"), steps=0, end=False)
