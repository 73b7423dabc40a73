"""Runs that the dashboard's tests look at."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders import JournalBuilder, build_run_from_text
from decode_run import LAYER, SCHEDULES, build_decode_run, write_step
from hostile import HOSTILE

from musetrace.job_table import JobTable
from musetrace.store import Run, open_run
from musetrace.store.frame import ChunkType
from musetrace.store.index import keep_probe

if TYPE_CHECKING:
    from site_visits import Site

# One block, one launch: every percentile is the one time that is written here.
TINY = """
r0 s0 l0 layer=0 sliding b0 w0 attention_load_k  1000000000 1000123457
r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000123461 1001234567
r0 s0 l0 layer=0 sliding b0 w4 stop1_wait_ranks  1001234577 1001300011
"""

SHORT = """
r0 s0 l0 layer=0 sliding b0 w4 attention_compute 1000000000 1000001000
r0 s0 l1 layer=1 sliding b0 w4 attention_compute 1000002000 1000003000
"""

PARTS = """
r0 s0 l0 layer=-1 draft_layer b0 w4 attention_compute 1000000000 1000004000
r0 s0 l1 layer=-1 draft_head  b0 w4 attention_compute 1000005000 1000009000
r0 s0 l2 layer=0  sliding     b0 w4 attention_compute 1000008000 1000020000
r0 s0 l3 layer=-1 accept      b0 w4 attention_compute 1000021000 1000022000
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A browser and the servers that it visits; only for modules that have asked for Playwright."""
    from site_visits import Site

    with ExitStack() as stack:
        yield Site(stack)


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
    # What the run has comes first, and so has the worst names.
    in_order = sorted(table.jobs, key=lambda job: job.name not in LAYER)
    ops = list(dict.fromkeys(job.op for job in in_order))
    suffix = {job.name: HOSTILE[place % len(HOSTILE)] for place, job in enumerate(in_order)}
    jobs = tuple(
        dataclasses.replace(job, name=f"{job.name} {suffix[job.name]}", op=hostile_op(ops, job.op))
        for job in table.jobs
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


@pytest.fixture(scope="session")
def tiny(tiny_path: Path) -> Run:
    return open_run(tiny_path)


@pytest.fixture(scope="session")
def empty(empty_path: Path) -> Run:
    return open_run(empty_path)


@pytest.fixture(scope="session")
def hostile(hostile_path: Path) -> Run:
    return open_run(hostile_path)


@pytest.fixture(scope="session")
def coarse(coarse_path: Path) -> Run:
    return open_run(coarse_path)


@pytest.fixture(scope="session")
def unstamped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One step of two launches, recorded with stamps off."""
    folder = tmp_path_factory.mktemp("unstamped")
    return open_run(build_run_from_text(folder, SHORT, slot_bytes=0))


@pytest.fixture(scope="session")
def batched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Steps without launches, and a note that says why."""
    journal = JournalBuilder(tmp_path_factory.mktemp("batched"), JobTable.built_in(), blocks=1, slot_bytes=0)
    journal.json(ChunkType.REPORT, {"kernel": "", "text": "a batch runs elsewhere <b>"})
    for step in range(2):
        journal.step(step, 1000 * step + 1, 1000 * step + 701, tokens=4)
    journal.end()
    return open_run(journal.folder)


@pytest.fixture(scope="session")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two draft kernels, a layer that begins before the second has ended, and a kernel that accepts."""
    return open_run(build_run_from_text(tmp_path_factory.mktemp("drafted"), PARTS, blocks=1))


@pytest.fixture(scope="session")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One launch of four blocks, and one that was lost."""
    table = JobTable.built_in()
    journal = JournalBuilder(tmp_path_factory.mktemp("lossy"), table, blocks=4, slot_bytes=4)
    write_step(journal, 0, [("entry", SCHEDULES["entry"])])
    journal.loss(0, 1, 1)
    journal.end()
    return open_run(journal.folder)


@pytest.fixture(scope="session")
def gpu_slice(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The recording of a slice on an H200, with what was probed on it."""
    folder = tmp_path_factory.mktemp("slice") / "run"
    shutil.copytree(repository / "samples/recordings/slice-h200", folder)
    keep_probe(folder, json.loads((repository / "samples/recordings/probe-h200.json").read_text()))
    return open_run(folder)


@pytest.fixture(scope="session")
def two_ranks(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The recording of two ranks of a small model on one H200."""
    folder = tmp_path_factory.mktemp("two") / "run"
    shutil.copytree(repository / "samples/recordings/mini-h200-tp2", folder)
    return open_run(folder)
