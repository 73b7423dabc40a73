"""The layer kernel's machine code, compiled here and read as a file: no GPU is needed. About 15 s of nvcc."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from musetrace.overhead.built_in.own_code import compare_own_code
from musetrace.overhead.machine_code import kernels_of

NVCC = shutil.which("nvcc")
pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not on PATH")

OFF_BUILD = "csrc/megakernel/layer_off.cu"
ABSENT_BUILDS = ["csrc/megakernel/layer_absent.cu", "csrc/megakernel/head_absent.cu"]
PUBLIC_HEADER = "tests/native/stamp_header.cu"
MODES = ("off", "store", "register")
OPTIONS = ["-std=c++17", "--expt-relaxed-constexpr", "-arch=sm_90a", "-I", "csrc", "-I", "csrc/include"]


def compiled(repository: Path, source: str, to: Path, *options: str) -> bytes:
    """What nvcc makes of a source; the suffix of ``to`` says what: .ptx or .cubin."""
    command = [str(NVCC), *OPTIONS, *options, f"-{to.suffix[1:]}", source, "-o", str(to)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return to.read_bytes()


def machine_code(cubin: bytes) -> dict[str, bytes]:
    """The instructions of each kernel."""
    return {name: kernel.code for name, kernel in kernels_of(cubin).items()}


def instructions(code: bytes) -> int:
    """How many there are, of 16 bytes each; the padding behind the last, a branch to itself, is left out."""
    rows = [code[at : at + 16] for at in range(0, len(code), 16)]
    padding = rows[-1][:8]
    while rows and rows[-1][:8] == padding:
        rows.pop()
    return len(rows)


def test_registers_move_from_the_single_warps_to_the_group(repository: Path, tmp_path: Path) -> None:
    ptx = compiled(repository, OFF_BUILD, tmp_path / "off.ptx").decode()
    moves = [line.split()[0] for line in ptx.splitlines() if line.strip().startswith("setmaxnreg")]
    assert sorted(moves) == ["setmaxnreg.dec.sync.aligned.u32", "setmaxnreg.inc.sync.aligned.u32"]


def test_the_off_build_has_the_machine_code_of_a_source_without_stamps(
    repository: Path, tmp_path: Path
) -> None:
    """In one file, as in the compiled module, so that `musetrace overhead` finds them there."""
    sources = [OFF_BUILD, "csrc/megakernel/head_kernel.cu", *ABSENT_BUILDS]
    cubins = [compiled(repository, source, tmp_path / f"{Path(source).stem}.cubin") for source in sources]
    together = tmp_path / "together"
    together.write_bytes(b"".join(cubins))
    layer, head = compare_own_code(together)
    assert layer.code_bytes > 10 * head.code_bytes > 10_000
    assert (layer.difference, head.difference) == (None, None)


def test_the_compiled_module_has_both_and_they_are_the_same() -> None:
    module = pytest.importorskip("musetrace._cuda", reason="built without nvcc")
    assert [kernel.difference for kernel in compare_own_code(Path(module.__file__))] == [None, None]


def test_the_absent_builds_are_made_of_sources_without_stamps(repository: Path) -> None:
    """Or they would be the off build once more, and comparing would prove nothing."""

    def stamping(source: str) -> int:
        command = [str(NVCC), *OPTIONS, "-E", source]
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
        return len(re.findall(r"template (?:begin|end)<kJob>\(\)", done.stdout))

    assert stamping(OFF_BUILD) > 0
    assert [stamping(source) for source in ABSENT_BUILDS] == [0, 0]


@pytest.mark.parametrize("mode", ["off", "store", "register"])
def test_off_is_the_public_header_left_out(repository: Path, tmp_path: Path, mode: str) -> None:
    """Against the same source without its stamps: no header, no macro, no line that names them."""
    source = (repository / PUBLIC_HEADER).read_text(encoding="ascii")
    words = ("musetrace", "MUSETRACE", "stamps", "JOB(", "ROLE(", "#define", "clang-format", "#if", "#endif")
    kept = [line for line in source.splitlines() if not any(word in line for word in words)]
    plain = tmp_path / "plain.cu"
    plain.write_text("\n".join(kept) + "\n")
    option = f"-DMUSETRACE_STAMPS={MODES.index(mode)}"
    with_header = machine_code(compiled(repository, PUBLIC_HEADER, tmp_path / "with.cubin", option))
    without = machine_code(compiled(repository, str(plain), tmp_path / "without.cubin"))
    assert len(with_header) == len(without) == 1
    assert (with_header == without) == (mode == "off")


def test_a_stamp_is_two_instructions(repository: Path, tmp_path: Path) -> None:
    """In the register build, and what the warp has before its first stamp and at its end does not count."""
    sizes = {}
    for jobs in (4, 12):
        source = tmp_path / f"jobs{jobs}.cu"
        stamps = "".join(
            f"MUSETRACE_BEGIN(warp, Jobs::a, {number}); data[{number * 32} + threadIdx.x] += 1.0f;\n"
            f"MUSETRACE_END(warp, Jobs::a, {number});\n"
            for number in range(jobs)
        )
        work = "".join(f"data[{number * 32} + threadIdx.x] += 1.0f;\n" for number in range(jobs))
        source.write_text(
            '#include "musetrace/stamp.cuh"\n#define ROLES(ROLE) ROLE(all, 0, 0, 1)\n'
            "#define JOBS(JOB) JOB(a, op, Compute, all, none, 16)\n"
            'MUSETRACE_JOB_TABLE(Jobs, "jobs", 1, ROLES, JOBS);\n'
            "__global__ void stamped(volatile float* data, void* region) {\n"
            "musetrace::KernelStamps<Jobs> kernel(region);\nauto warp = kernel.role<Jobs::all>();\n"
            f"{stamps}MUSETRACE_FLUSH(warp);\n}}\n"
            f"__global__ void plain(volatile float* data, void* region) {{\n{work}}}\n"
        )
        code = machine_code(compiled(repository, str(source), tmp_path / f"jobs{jobs}.cubin"))
        sizes[jobs] = [instructions(code[name]) for name in sorted(code)]
    (few_plain, few), (many_plain, many) = sizes[4], sizes[12]
    stamps_more = 2 * (12 - 4)
    assert few_plain < many_plain
    assert (many - many_plain) - (few - few_plain) == 2 * stamps_more


def test_a_runtime_compiler_without_headers_takes_the_header(repository: Path, tmp_path: Path) -> None:
    """As NVRTC reads it: no folder of the system is searched."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ on this machine")
    command = [compiler, "-E", "-x", "c++", "-std=c++17", "-nostdinc", "-D__CUDACC__", "-D__CUDACC_RTC__"]
    command += ["-D__CUDA_ARCH__=900", "-I", "csrc/include", "csrc/include/musetrace/stamp.cuh"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "KernelStamps" in done.stdout


OUT_OF_RANGE = {
    "a job of another role": "MUSETRACE_BEGIN(producer, Jobs::multiply);",
    "a job of the block": "MUSETRACE_BEGIN(producer, Jobs::life);",
    "no such job": "producer.begin<Jobs::kNumJobs>();",
    "an end of an instant": "MUSETRACE_END(producer, Jobs::go);",
    "no payload": "MUSETRACE_PAYLOAD(producer, Jobs::load, 1);",
    "a constant iteration beyond the last": "producer.begin_at<Jobs::load, 4>();",
}


@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_what_is_out_of_range_and_constant_does_not_compile(
    repository: Path, tmp_path: Path, what: str
) -> None:
    jobs = (
        "JOB(load, op, Load, producer_role, none, 4)",
        "JOB(multiply, op, Compute, other, none)",
        "JOB(go, op, Sync, producer_role, none, 1, musetrace::abi::kInstant)",
        "JOB(life, op, Compute, block, none)",
    )
    program = (
        '#include "musetrace/stamp.cuh"\n'
        "#define ROLES(ROLE) ROLE(producer_role, 0, 0, 1) ROLE(other, 1, 1, 2) "
        "ROLE(block, 0, 1, 0, musetrace::abi::kBlock)\n"
        f"#define JOBS(JOB) {' '.join(jobs)}\n"
        'MUSETRACE_JOB_TABLE(Jobs, "jobs", 2, ROLES, JOBS);\n'
        "void f(void* region) { musetrace::KernelStamps<Jobs> kernel(region, 0, 0);\n"
        "auto producer = kernel.role<Jobs::producer_role>(); LINE producer.flush(); }\n"
    )
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ on this machine")
    for line, compiles in (("MUSETRACE_BEGIN(producer, Jobs::load);", True), (OUT_OF_RANGE[what], False)):
        source = tmp_path / "program.cpp"
        source.write_text(program.replace("LINE", line))
        command = [compiler, "-std=c++17", "-fsyntax-only", "-I", "csrc/include", str(source)]
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == compiles, done.stderr
