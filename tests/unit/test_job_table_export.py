"""Job tables that shared libraries export, several libraries in one process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from musetrace import JobTable, NewJob, Role
from musetrace.declare import cuda_source

ROLES = [Role("one", 0, 1)]
TABLES = {
    "few": [NewJob("load", "op", "load", "one")],
    "many": [NewJob("load", "op", "load", "one", iterations=40), NewJob("store", "op", "send", "one")],
}


@pytest.mark.parametrize("compiler", ["g++", "nvcc"])
def test_libraries_whose_tables_have_the_same_type_name_keep_their_own(
    repository: Path, tmp_path: Path, compiler: str
) -> None:
    """As when a library is changed, built and loaded again in a notebook."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} on this machine")
    pic = ["-arch=sm_90a", "-Xcompiler", "-fPIC"] if compiler == "nvcc" else ["-fPIC"]
    found = {}
    for name, jobs in TABLES.items():
        source = tmp_path / f"{name}.{'cu' if compiler == 'nvcc' else 'cpp'}"
        source.write_text(
            '#include "musetrace/stamp.cuh"\n#include "musetrace/abi/job_table_json.h"\n'
            + cuda_source("Jobs", name, 2, ROLES, jobs)
            + "MUSETRACE_EXPORT_JOB_TABLE(Jobs);\n"
        )
        library = tmp_path / f"{compiler}-{name}.so"
        options = ["-std=c++17", "-shared", *pic, "-I", repository / "csrc/include"]
        subprocess.run([compiler, *options, source, "-o", library], check=True, timeout=120)
        found[name] = JobTable.from_library(library, "Jobs")
    for name, jobs in TABLES.items():
        assert found[name] == JobTable.declare(name, 2, ROLES, jobs)
