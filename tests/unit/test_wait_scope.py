"""Whose producers a wait waits for, as its author declares it: in Python, and in C++ by the compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from musetrace.declare import NewJob, Role, cuda_source
from musetrace.job_table import JobTable

ONE = [Role("one", 0, 0)]


@pytest.mark.parametrize("scope", [None, "block", "rank", "ranks"])
def test_a_wait_keeps_its_scope(scope: str | None) -> None:
    jobs = [NewJob("a", "op", "load", "one"), NewJob("b", "op", "wait", "one", awaits="a", scope=scope)]
    table = JobTable.declare("scopes", 4, ONE, jobs)
    assert [job.scope for job in table.jobs] == [None, scope]
    assert ("kFrom" in cuda_source("Mine", "scopes", 4, ONE, jobs)) == (scope is not None)


WRONG_SCOPES = {
    "of a load": "JOB(a, op, Load, one, none, 1, musetrace::abi::kFromBlock)",
    "twice": "JOB(a, op, Wait, one, a, 1, musetrace::abi::kFromBlock | musetrace::abi::kFromRank)",
}


@pytest.mark.parametrize("what", WRONG_SCOPES)
def test_a_scope_that_cannot_be_does_not_compile(repository: Path, tmp_path: Path, what: str) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    right = "JOB(a, op, Wait, one, a, 1, musetrace::abi::kFromRank)"
    for job, complaint in ((right, None), (WRONG_SCOPES[what], "two scopes")):
        program = f"""#include "musetrace/abi/job.h"
#define ROLES(ROLE) ROLE(one, 0, 0, 1)
#define JOBS(JOB) {job}
MUSETRACE_JOB_TABLE(Jobs, "jobs", 1, ROLES, JOBS);
"""
        (tmp_path / "table.cpp").write_text(program)
        command = [compiler, "-std=c++17", "-fsyntax-only", "-I", repository / "csrc/include"]
        done = subprocess.run([*command, tmp_path / "table.cpp"], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (complaint is None), done.stderr
        assert complaint is None or complaint in done.stderr
