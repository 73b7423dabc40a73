"""The ABI as Python sees it, against a golden file, a C++ compiler and plain integer arithmetic.

After a deliberate change: `python tests/unit/test_abi.py > tests/golden/abi.json`, and read the diff.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from musetrace import _core
from musetrace.abi import StampLayout
from musetrace.job_table import JOB_KINDS, JobTable

STRUCTS = {
    "RegionHeader": "region_header_dtype",
    "BlockHeader": "block_header_dtype",
    "WaitReport": "wait_report_dtype",
    "FileHeader": "file_header_dtype",
    "ChunkHeader": "chunk_header_dtype",
}
CONSTANTS = (
    "STAMP_ABI_VERSION",
    "WIDEN_BACK_NS",
    "REGION_ALIGN",
    "FORMAT_MAJOR",
    "FORMAT_MINOR",
    "CHUNK_MAGIC",
    "MAX_CHUNK_BYTES",
)
WARPS_PER_BLOCK = 12
LANES_PER_WARP = 32
TWO_32 = 1 << 32
TWO_64 = 1 << 64
WIDEN_BACK_NS = 1 << 20

# The article's five stops: what each rank waits for before the next op.
STOPS = {
    "stop1_wait_ranks": "o_proj_send",
    "stop2_wait_ranks": "router_send",
    "stop3_wait_ranks": "gemm1_send",
    "stop4_wait_ranks": "gemm2_send",
    "stop5_wait_ranks": "unpooler_send",
}
# Those of the draft, the tree and accepting.
STEP_STOPS = {
    "fc_stop_wait_ranks": "fc_send",
    "down_stop_wait_ranks": "down_send",
    "tree_wait_ranks": "tree_send",
    "accept_wait_ranks": "accept_send",
}


def struct_fields(dtype: np.dtype[Any]) -> dict[str, Any]:
    """A struct as plain JSON: its size, and offset, type and bytes of each field."""
    assert dtype.fields is not None
    fields = {name: [at, field.base.str, field.itemsize] for name, (field, at) in dtype.fields.items()}
    return {"bytes": dtype.itemsize, "fields": fields}


def job_lines(table: dict[str, Any]) -> list[str]:
    """One line per job: name, op, kind, role, and for a wait the name of the awaited job and of whom."""
    names = [job["name"] for job in table["jobs"]]
    return [
        " ".join([job["name"], job["op"], job["kind"], job["role"]])
        + ("" if job["awaits"] is None else f" <- {names[job['awaits']]} of {job['scope']}")
        for job in table["jobs"]
    ]


def pair_lines(table: dict[str, Any]) -> list[str]:
    """One line per slot pair that is used: pair, warp, job."""
    return [
        f"{pair} warp{warp} {table['jobs'][job]['name']}"
        for pair, (job, warp) in enumerate(zip(table["job_of_pair"], table["warp_of_pair"], strict=True))
        if job >= 0
    ]


def description() -> dict[str, Any]:
    """Everything of the ABI that a reader of another build depends on."""
    abi = _core.abi
    return {
        "structs": {name: struct_fields(getattr(abi, attribute)) for name, attribute in STRUCTS.items()},
        "constants": {name: getattr(abi, name) for name in CONSTANTS},
        "file_magic": abi.FILE_MAGIC.decode("ascii"),
        "chunk_types": abi.CHUNK_TYPES,
        "job_kinds": list(abi.JOB_KINDS),
        "job_tables": {
            name: {
                "warps_per_block": table["warps_per_block"],
                "slots": table["slots"],
                "jobs": job_lines(table),
                "pairs": pair_lines(table),
            }
            for name, table in abi.job_tables.items()
        },
    }


@pytest.fixture(scope="module")
def golden(repository: Path) -> dict[str, Any]:
    return json.loads((repository / "tests" / "golden" / "abi.json").read_text(encoding="ascii"))


PARTS = ["structs", "constants", "file_magic", "chunk_types", "job_kinds", "job_tables"]


@pytest.mark.parametrize("part", PARTS)
def test_the_abi_is_the_golden_one(golden: dict[str, Any], part: str) -> None:
    assert description()[part] == golden[part]


def compiler_says(source: str, repository: Path, folder: Path) -> list[str]:
    """The lines that a C++ program prints which includes every header of musetrace/abi."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    folder_of_headers = repository / "csrc" / "include"
    headers = sorted((folder_of_headers / "musetrace" / "abi").glob("*.h"))
    includes = "".join(f'#include "musetrace/abi/{header.name}"\n' for header in headers)
    preamble = f"{includes}#include <cstdio>\nusing namespace musetrace::abi;\n"
    program, binary = folder / "abi.cpp", folder / "abi"
    program.write_text(f"{preamble}int main() {{\n{source}\n}}\n")
    command = [compiler, "-std=c++17", "-Wall", "-Werror", "-Wno-invalid-offsetof", "-I", folder_of_headers]
    subprocess.run([*command, program, "-o", binary], check=True, timeout=60)
    done = subprocess.run([binary], check=True, capture_output=True, text=True, timeout=10)
    return done.stdout.splitlines()


def test_dtypes_have_the_offsets_that_the_compiler_gives(
    golden: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    lines, expected = [], []
    for struct, layout in golden["structs"].items():
        lines.append(f'std::printf("{struct} %zu\\n", sizeof({struct}));')
        expected.append(f"{struct} {layout['bytes']}")
        for field, (offset, _, size) in layout["fields"].items():
            place = f"offsetof({struct}, {field}), sizeof({struct}::{field})"
            lines.append(f'std::printf("{struct}.{field} %zu %zu\\n", {place});')
            expected.append(f"{struct}.{field} {offset} {size}")
    assert compiler_says("\n".join(lines), repository, tmp_path) == expected
    for struct, attribute in STRUCTS.items():
        assert struct_fields(getattr(_core.abi, attribute)) == golden["structs"][struct]


def test_constants_and_jobs_are_those_of_the_headers(
    golden: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    source = """
    std::printf("%u %llu %zu %u %u %u %llu %.7s\\n", kStampAbiVersion, (unsigned long long)kWidenBackNs,
                kRegionAlign, kFormatMajor, kFormatMinor, kChunkMagic,
                (unsigned long long)kMaxChunkBytes, kFileMagic);
    for (const Job& job : MuseLayer::kJobs) {
        std::printf("%s %s %s %s", job.name, job.op, kJobKindNames[int(job.kind)],
                    MuseLayer::kRoles[job.role].name);
        const char* scope = job.scope() == kFromBlock ? "block" : job.scope() == kFromRank ? "rank" : "ranks";
        if (job.awaits != kNoJob) std::printf(" <- %s of %s", MuseLayer::kJobs[job.awaits].name, scope);
        std::printf("\\n");
    }
    for (unsigned pair = 0; pair < kSlotMap<MuseLayer>.total / 2; ++pair)
        for (unsigned job = 0; job < MuseLayer::kNumJobs; ++job)
            for (unsigned warp = 0; warp < MuseLayer::kWarpsPerBlock; ++warp)
                if (kSlotMap<MuseLayer>.slot_of[job][warp] == 2 * pair)
                    std::printf("%u warp%u %s\\n", pair, warp, MuseLayer::kJobs[job].name);
    """
    table = golden["job_tables"]["muse_layer"]
    constants = " ".join(str(golden["constants"][name]) for name in CONSTANTS)
    expected = [f"{constants} {golden['file_magic'].rstrip()}", *table["jobs"], *table["pairs"]]
    assert compiler_says(source, repository, tmp_path) == expected


def test_job_kinds_are_the_same_on_both_sides() -> None:
    assert _core.abi.JOB_KINDS == JOB_KINDS


@pytest.fixture(scope="module")
def table() -> JobTable:
    return JobTable.built_in("muse_layer")


def test_a_block_has_twelve_warps_and_every_one_has_a_role(table: JobTable) -> None:
    assert table.warps_per_block == WARPS_PER_BLOCK
    roles = {job.role: job.warps for job in table.jobs}
    covered = [warp for first, last in roles.values() for warp in range(first, last + 1)]
    assert sorted(covered) == list(range(WARPS_PER_BLOCK))
    for job in table.jobs:
        assert job.stamped_by
        assert all(job.warps[0] <= warp <= job.warps[1] for warp in job.stamped_by)


def test_each_stop_waits_for_what_the_ranks_send(table: JobTable) -> None:
    by_name = {job.name: job for job in table.jobs}
    stops = STOPS | STEP_STOPS
    assert sorted(name for name in by_name if name.endswith("_wait_ranks")) == sorted(stops)
    for name, sent in stops.items():
        awaits = by_name[name].awaits
        assert awaits is not None
        assert table.jobs[awaits].name == sent
        assert table.jobs[awaits].kind in {"send", "recv"}
    assert {job.op for job in table.jobs if job.op.startswith("stop")} == {f"stop{n}" for n in range(1, 6)}


def test_a_wait_and_nothing_else_names_the_job_it_waits_for(table: JobTable) -> None:
    assert len({job.name for job in table.jobs}) == len(table.jobs)
    for job in table.jobs:
        assert job.kind in JOB_KINDS
        assert (job.awaits is not None) == (job.kind == "wait"), job.name
        assert job.awaits is None or table.jobs[job.awaits].kind != "wait", job.name


# Barriers and the ring are of a block; all else comes through a rank's own exchange buffers, which its blocks
# fill, or at the stops those of all ranks.
FROM_THE_RANK = {
    "muse_layer": {
        *("o_proj_wait_heads", "stop1_wait_rows", "stop5_wait_rows"),
        *("fc_stop_wait_rows", "down_wait_features", "down_stop_wait_rows"),
    },
    "muse_hopper": {
        *("attention_wait_splits", "o_proj_wait_heads", "stop1_wait_rows", "pooler_wait_input"),
        *("router_wait_slices", "gemm1_wait_input", "unpooler_wait_input", "stop5_wait_rows"),
        *("entry_wait_rows", "qkv_wait_input", "qkv_wait_slices"),
    },
}
FROM_ALL_RANKS = {  # beside each *_wait_ranks
    "muse_layer": {"gemm2_wait_input"},
    "muse_hopper": {"stop2_wait_logits"},
}


@pytest.mark.parametrize("name", FROM_THE_RANK)
def test_every_wait_of_the_built_in_tables_says_whose_producers_it_waits_for(name: str) -> None:
    for job in JobTable.built_in(name).jobs:
        expected = None if job.kind != "wait" else "block"
        if job.name in FROM_THE_RANK[name]:
            expected = "rank"
        if job.name.endswith("_wait_ranks") or job.name in FROM_ALL_RANKS[name]:
            expected = "ranks"
        assert job.scope == expected, job.name


def test_slot_pairs_are_runs_of_whole_registers_in_table_order(table: JobTable) -> None:
    pairs: list[tuple[int, int]] = []
    for warp in range(table.warps_per_block):
        run = [(job_id, warp) for job_id, job in enumerate(table.jobs) if warp in job.stamped_by]
        pairs += run + [(-1, -1)] * (-len(run) % (LANES_PER_WARP // 2))
    assert list(zip(table.job_of_pair, table.warp_of_pair, strict=True)) == pairs
    assert table.slots == 2 * len(pairs)
    used = [pair for pair in pairs if pair != (-1, -1)]
    assert len(set(used)) == len(used) == sum(len(job.stamped_by) for job in table.jobs)
    assert table.pair_jobs.tolist() == [job for job, _ in pairs]
    assert table.pair_warps.tolist() == [warp for _, warp in pairs]


def test_unknown_job_ids_have_names(table: JobTable) -> None:
    unknown = len(table.jobs)
    assert table.job_name(0) == table.jobs[0].name
    assert (table.job_name(unknown), table.op_name(unknown)) == (f"job#{unknown}", "unknown")
    assert table.job_name(-1) == "job#-1"


job_tables = st.builds(
    lambda name, jobs, pairs: JobTable.from_json(
        {
            "name": name,
            "warps_per_block": 12,
            "slots": 2 * len(pairs),
            "jobs": jobs,
            "job_of_pair": [job for job, _, _, _ in pairs],
            "warp_of_pair": [warp for _, warp, _, _ in pairs],
            "iteration_of_pair": [iteration for _, _, iteration, _ in pairs],
            "payload_of_pair": [is_payload for _, _, _, is_payload in pairs],
        }
    ),
    st.text(),
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.text(),
                "op": st.text(),
                "kind": st.sampled_from(JOB_KINDS),
                "role": st.text(),
                "warps": st.tuples(st.integers(0, 31), st.integers(0, 31)),
                "stamped_by": st.lists(st.integers(0, 31)),
                "awaits": st.none() | st.integers(0, 999),
                "scope": st.sampled_from([None, "block", "rank", "ranks"]),
                "iterations": st.integers(1, 99),
                "payload": st.booleans(),
                "instant": st.booleans(),
                "owner": st.sampled_from(["warp", "block"]),
            }
        ),
        max_size=5,
    ),
    st.lists(
        st.tuples(st.integers(-1, 999), st.integers(-1, 31), st.integers(0, 98), st.booleans()), max_size=5
    ),
)


def test_a_job_table_of_an_older_run_has_one_instance_of_each_job(table: JobTable) -> None:
    data = table.to_json()
    del data["iteration_of_pair"], data["payload_of_pair"]
    for job in data["jobs"]:
        for name in ("iterations", "payload", "instant", "owner", "scope"):
            del job[name]
    older = JobTable.from_json(data)
    assert older.jobs == tuple(replace(job, scope=None) for job in table.jobs)
    assert (older.iteration_of_pair, older.payload_of_pair) == ((), ())


@given(job_tables)
def test_a_job_table_survives_json(table: JobTable) -> None:
    assert JobTable.from_json(json.loads(json.dumps(table.to_json()))) == table


def test_the_built_in_job_table_survives_json(table: JobTable) -> None:
    text = json.dumps(table.to_json())
    assert JobTable.from_json(json.loads(text)) == table
    assert json.loads(text) == json.loads(json.dumps(_core.abi.job_tables["muse_layer"]))


near_a_wrap = st.builds(
    lambda wraps, offset: (wraps * TWO_32 + offset) % TWO_64,
    st.integers(0, TWO_32 - 1),
    st.integers(-2 * WIDEN_BACK_NS, 2 * WIDEN_BACK_NS) | st.sampled_from([-1, 0, 1]),
)
header_times = near_a_wrap | st.integers(0, TWO_64 - 1)


@given(header_times, st.integers(-WIDEN_BACK_NS, TWO_32 - WIDEN_BACK_NS - 1))
@example(header_ns=TWO_32, after_ns=-WIDEN_BACK_NS)
@example(header_ns=TWO_32, after_ns=TWO_32 - WIDEN_BACK_NS - 1)
@example(header_ns=TWO_32 - 1, after_ns=0)
@example(header_ns=0, after_ns=-1)
@example(header_ns=TWO_64 - 1, after_ns=1)
def test_widen_gives_back_the_time_whose_low_half_was_kept(header_ns: int, after_ns: int) -> None:
    time_ns = (header_ns + after_ns) % TWO_64
    assert _core.abi.widen(time_ns % TWO_32, header_ns) == time_ns


@given(header_times, st.integers(0, TWO_32 - 1) | st.sampled_from([0, 1, TWO_32 - 1]))
def test_widen_takes_the_first_such_time_not_long_before_the_header(header_ns: int, low: int) -> None:
    earliest = header_ns - WIDEN_BACK_NS
    first = earliest + (low - earliest) % TWO_32
    assert _core.abi.widen(low, header_ns) == first % TWO_64


@given(st.integers(1, 1024), st.integers(1, 1024), st.sampled_from([0, 4, 8]))
@example(132, 256, 8)
def test_a_region_holds_headers_then_slots_both_aligned(blocks: int, slots: int, slot_bytes: int) -> None:
    header_bytes = 128 + -(-blocks * 24 // 128) * 128
    assert _core.abi.stamp_layout(blocks, slots, slot_bytes)[:2] == (128, header_bytes)
    layout = StampLayout(blocks, slots, slot_bytes)
    assert layout.region_bytes == header_bytes + -(-blocks * slots * slot_bytes // 128) * 128


def test_views_of_a_region_show_the_bytes_at_their_place() -> None:
    layout = StampLayout(blocks=3, slots=32, slot_bytes=4)
    region = np.zeros(layout.region_bytes, dtype=np.uint8)
    region[8] = 4  # the region's header: blocks, slots, slot_bytes
    region[128 + 24 + 8] = 7  # block 1's epoch: headers of 24 bytes, time_ns before it
    region[256 + (2 * 32 + 5) * 4 + 1] = 1  # block 2, slot 5: after 72 bytes of headers, rounded up to 128
    assert layout.region_header(region)["slot_bytes"].tolist() == [4]
    assert layout.headers(region)["epoch"].tolist() == [0, 7, 0]
    assert layout.stamps(region).shape == (3, 32)
    assert layout.stamps(region)[2, 5] == 256
    assert int(layout.stamps(region).sum()) == 256


if __name__ == "__main__":
    print(json.dumps(description(), indent=1))
