"""musetrace.triton without a GPU: played by Triton's interpreter, and compiled for Hopper. Needs triton."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from musetrace import JobTable, NewJob, Role
from musetrace.errors import UsageError
from musetrace.overhead.machine_code import kernels_of
from musetrace.store.decode import Flag
from tests.unit.test_kernel_stamps import BLOCKS, EPOCH, SLOT_BYTES, Region, rows
from tests.unit.triton_table import ITERATIONS, TABLE

pytest.importorskip("triton", reason="triton is not installed")

SAMPLE = "samples/triton_kernel/matmul.py"
NO_WARP = 255
TILES = {"TILE": 128, "DEPTH": 64}
NAMES = dict.fromkeys("abc", "*bf16") | {"c": "*fp32", "n": "i32", "k": "i32"}
CASES: dict[str, dict[str, Any]] = {
    f"{stamps}_{what}": {"stamps": stamps, "blocks": blocks, "iterations": iterations}
    for stamps in SLOT_BYTES
    for what, blocks, iterations in (("fits", BLOCKS, 4), ("overflow", BLOCKS, 7), ("grid", BLOCKS + 3, 4))
} | {
    "off": {"stamps": "off", "blocks": BLOCKS, "iterations": 4},
    "another_build": {"stamps": "store", "blocks": BLOCKS, "iterations": 4},
    "another_table": {"stamps": "store", "blocks": BLOCKS, "iterations": 4},
    "not_recorded": {"stamps": "store", "blocks": BLOCKS, "iterations": 4},
}


def region_of(name: str) -> Region | None:
    """As the recorder makes it for a case."""
    if name == "not_recorded":
        return None
    region = Region(TABLE, "register" if name.startswith(("register", "another_build")) else "store")
    if name == "another_table":
        region.header["slots"] = TABLE.slots + 32
    return region


@pytest.fixture(scope="module")
def played(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Region]:
    """The regions of all cases after their kernels."""
    folder = tmp_path_factory.mktemp("interpreted")
    regions = {name: region for name in CASES if (region := region_of(name)) is not None}
    for name, region in regions.items():
        np.save(folder / f"{name}.npy", region.memory)
    (folder / "cases.json").write_text(json.dumps(CASES))
    command = [sys.executable, "-m", "tests.unit.triton_on_host", folder]
    subprocess.run(command, cwd=repository, check=True, timeout=120)
    for name, region in regions.items():
        region.memory[:] = np.load(folder / f"{name}.npy")
    return regions


def words(region: Region) -> dict[str, int]:
    return {name: int(region.header[name][0]) for name in ("launches", "dropped_blocks", "mismatch")}


def expected_rows() -> set[tuple[int, str, int, int, int | None]]:
    """Of the kernel's loop over -1, 0, 1 and so on, what has a slot."""
    found: set[tuple[int, str, int, int, int | None]] = set()
    for block in range(BLOCKS):
        found |= {(block, "load", NO_WARP, i, 7 * i) for i in range(ITERATIONS)}
        found |= {(block, "go", NO_WARP, 0, None), (block, "store", NO_WARP, 1, None)}
    return found


@pytest.mark.parametrize("stamps", SLOT_BYTES)
@pytest.mark.parametrize(("what", "lost"), [("fits", 1), ("overflow", 4)])
def test_each_instance_has_its_span_and_the_rest_is_counted(
    played: dict[str, Region], stamps: str, what: str, lost: int
) -> None:
    region = played[f"{stamps}_{what}"]
    decoded = region.decoded(TABLE)
    assert rows(TABLE, decoded) == expected_rows()
    assert decoded.overflow == BLOCKS * lost
    assert set(decoded.spans.flag.tolist()) == {Flag.OK}
    assert words(region) == {"launches": 1, "dropped_blocks": 0, "mismatch": 0}
    assert decoded.spans.sm.tolist() == (decoded.spans.block + 40).tolist()


def test_times_are_those_of_the_clock_in_order(played: dict[str, Region]) -> None:
    """Block 0 reads the clock at 1000 for its header, then once a stamp, also for what has no slot."""
    region = played["store_fits"]
    slots = region.layout.stamps(region.memory)[0]
    headers = region.layout.headers(region.memory)
    assert headers["time_ns"][0] == 1000
    assert set(headers["epoch"].tolist()) == {EPOCH}
    loads = [value for i in range(ITERATIONS) for value in (1040 + 20 * i, 1050 + 20 * i, 7 * i, 1)]
    assert slots[: 4 * ITERATIONS].tolist() == loads
    assert slots[4 * ITERATIONS : 4 * ITERATIONS + 6].tolist() == [1010, 0, 0, 0, 1100, 1110]


@pytest.mark.parametrize("stamps", SLOT_BYTES)
def test_blocks_without_room_are_counted_and_stamp_nothing(played: dict[str, Region], stamps: str) -> None:
    region = played[f"{stamps}_grid"]
    assert rows(TABLE, region.decoded(TABLE)) == expected_rows()
    assert words(region) == {"launches": 1, "dropped_blocks": 3, "mismatch": 0}


@pytest.mark.parametrize("name", ["another_build", "another_table"])
def test_a_region_that_does_not_fit_is_left_alone_but_for_a_note(
    played: dict[str, Region], name: str
) -> None:
    assert words(played[name]) == {"launches": 1, "dropped_blocks": 0, "mismatch": 8 << 24 | TABLE.slots}
    assert not played[name].memory[128:].any()


def test_the_off_build_leaves_the_region_alone(played: dict[str, Region]) -> None:
    untouched = region_of("off")
    assert untouched is not None
    assert np.array_equal(played["off"].memory, untouched.memory)


def load(path: Path) -> Any:
    """A module that stands in a file."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def machine_code(cubin: bytes) -> dict[str, bytes]:
    """The instructions of each kernel."""
    return {name: kernel.code for name, kernel in kernels_of(cubin).items()}


def compile_for_hopper(kernel: Any, constants: dict[str, Any], num_stages: int = 1) -> dict[str, Any]:
    """What Triton makes of the sample's kernel: {"ptx": text, "cubin": bytes} and more."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {
        name: NAMES.get(name, "i64" if name == "region" else "constexpr") for name in kernel.arg_names
    }
    aligned = {
        (at,): [["tt.divisibility", 16]] for at, kind in enumerate(signature.values()) if kind != "constexpr"
    }
    source = ASTSource(kernel, signature, constexprs=constants, attrs=aligned)
    options = {"num_warps": 8, "num_stages": num_stages}
    made: dict[str, Any] = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm
    return made


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton-cache")))
        yield


@pytest.fixture(scope="module")
def sample(repository: Path) -> Any:
    return load(repository / SAMPLE)


EVENTS = {
    "clock": r"%globaltimer",
    "load": r"ld\.global\.v4",
    "copy": r"cp\.async\.cg",
    "landed": r"cp\.async\.wait_group\s+(\d+)",
    "share": r"st\.shared\.v4",
    "dot": r"wgmma\.mma_async",
    "dots done": r"wgmma\.wait_group\.sync\.aligned (\d+)",
    "store": r"st\.global\.v4",
}


def events(ptx: str) -> list[str]:
    """What happens in a kernel, line by line; several of a kind in a row are one."""
    found: list[str] = []
    for line in ptx.splitlines():
        for event, pattern in EVENTS.items():
            if match := re.search(pattern, line):
                found.append(" ".join([event, *match.groups()]))
    return [event for at, event in enumerate(found) if event == "clock" or event not in found[at - 1 : at]]


@pytest.mark.parametrize("stamps", SLOT_BYTES)
def test_a_span_holds_its_work_and_nothing_else(sample: Any, stamps: str) -> None:
    from musetrace import triton as stamp

    made = compile_for_hopper(sample.matmul, TILES | {"JOBS": stamp.jobs(sample.TABLE, stamps)})
    header = ["clock"]
    loaded = ["clock", "load", "share", "load", "share", "clock"]
    multiplied = ["clock", "dot", "dots done 0", "clock"]
    stored = ["clock", "share", "store", "clock"]
    assert events(made["ptx"]) == header + loaded + multiplied + stored


def test_what_pipelining_makes_of_spans_is_what_the_module_says(sample: Any) -> None:
    """The load's is the wait for its data, and the dot before may still run behind the dot's."""
    from musetrace import triton as stamp

    made = compile_for_hopper(sample.matmul, TILES | {"JOBS": stamp.jobs(sample.TABLE)}, num_stages=3)
    found = events(made["ptx"])
    loop = found[found.index("landed 2") - 1 :]
    assert loop[:6] == ["clock", "landed 2", "clock", "clock", "dot", "dots done 1"]
    assert loop[6:8] == ["clock", "copy"]
    assert "software pipelining" in str(stamp.__doc__)


def test_off_is_the_kernel_without_the_lines_that_stamp(
    sample: Any, repository: Path, tmp_path: Path
) -> None:
    from musetrace import triton as stamp

    source = (repository / SAMPLE).read_text(encoding="utf-8")
    kept = [line for line in source.splitlines() if not re.search(r"stamp|region|JOBS", line)]
    plain = tmp_path / "matmul.py"
    plain.write_text("\n".join(kept) + "\n")
    without = machine_code(compile_for_hopper(load(plain).matmul, TILES)["cubin"])
    builds = {
        stamps: machine_code(
            compile_for_hopper(sample.matmul, TILES | {"JOBS": stamp.jobs(sample.TABLE, stamps)})["cubin"]
        )
        for stamps in ("off", *SLOT_BYTES)
    }
    assert list(without) == ["matmul"]
    assert {stamps: code == without for stamps, code in builds.items()} == {
        "off": True,
        "register": False,
        "store": False,
    }


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("stamp.begin(stamps, JOBS.store, 2)", "fewer iterations"),
        ("stamp.begin(stamps, JOBS.store, -1)", "fewer iterations"),
        ("stamp.payload(stamps, JOBS.load, 1, 3)", "fewer iterations"),
        ("stamp.end(stamps, JOBS.go)", "an instant has no end"),
        ("stamp.instant(stamps, JOBS.load)", "this job has an end"),
        ("stamp.payload(stamps, JOBS.store, 1)", "no payload"),
        ("stamp.begin(stamps, JOBS.nothing)", "has no job nothing; it has load, go, store"),
        ("stamp.begin(stamps, JOBS.store, 1)", None),
    ],
)
def test_what_is_wrong_and_constant_does_not_compile(
    tmp_path: Path, line: str, complaint: str | None
) -> None:
    import triton

    from musetrace import triton as stamp

    program = tmp_path / "program.py"
    program.write_text(
        "import triton\nimport triton.language as tl\nimport musetrace.triton as stamp\n@triton.jit\n"
        "def kernel(c, region, JOBS: tl.constexpr):\n"
        f"    stamps = stamp.open(region, JOBS)\n    {line}\n    tl.store(c, 1.0)\n"
    )
    constants = {"JOBS": stamp.jobs(TABLE, "store")}
    if complaint is None:
        assert "globaltimer" in compile_for_hopper(load(program).kernel, constants)["ptx"]
        return
    with pytest.raises((triton.CompilationError, AttributeError)) as refused:
        compile_for_hopper(load(program).kernel, constants)
    causes, error = "", refused.value
    while error is not None:
        causes, error = causes + str(error), error.__cause__
    assert complaint in causes


def test_tables_that_differ_are_different_constants() -> None:
    """Triton's cache on disk knows a constant by its text."""
    from musetrace.triton import jobs

    role = [Role("program", 0, 3, owner="block")]
    fewer = JobTable.declare("kernel", 4, role, [NewJob("load", "tile", "load", "program", iterations=2)])
    more = JobTable.declare("kernel", 4, role, [NewJob("load", "tile", "load", "program", iterations=3)])
    made = [jobs(table, stamps) for table in (fewer, more) for stamps in ("off", *SLOT_BYTES)]
    assert len({repr(one) for one in made}) == len(set(made)) == len(made)
    assert jobs(fewer) == jobs(fewer)
    assert hash(jobs(fewer)) == hash(jobs(fewer))


@pytest.mark.parametrize(
    ("role", "job", "stamps", "complaint"),
    [
        (Role("one", 0, 3), "load", "store", "job load is one of warps, and Triton knows blocks alone"),
        (Role("one", 0, 3, owner="block"), "_load", "store", "does not begin with _"),
        (Role("one", 0, 3, owner="block"), "load", "both", "choose register, store or off"),
    ],
)
def test_a_table_that_triton_cannot_stamp_is_refused_in_one_line(
    role: Role, job: str, stamps: str, complaint: str
) -> None:
    from musetrace.triton import jobs

    table = JobTable.declare("kernel", 4, [role], [NewJob(job, "tile", "load", "one")])
    with pytest.raises(UsageError, match=complaint) as refused:
        jobs(table, stamps)
    assert "\n" not in str(refused.value)
