"""Spans laid over a trace of torch.profiler: runs and traces made up, their clocks apart by a known time."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musetrace.errors import AnalysisError, MusetraceError, TraceFileError, UsageError
from musetrace.export.chrome_trace import ChromeTrace, function_name, microseconds
from musetrace.export.torch_profiler import Overlay, lay_over
from tests.builders import JournalBuilder, LaunchStamps
from tests.unit.profiled_run import (
    BLOCKS,
    GPU_NAME,
    OFFSET_NS,
    OTHER_EVENTS,
    TABLE,
    UNIX_NS,
    Made,
    assert_tracks_are_stacks,
    begin_slot,
    events_in,
    expected,
    inside,
    kernel_event,
    make_run,
    make_trace,
    shown,
    trace_text,
)


def overlay_of(folder: Path, launches: Sequence[Made], **options: Any) -> Overlay:
    run, trace = make_run(folder / "run", launches), make_trace(folder / "trace.json", launches)
    return lay_over(run, trace, folder / "opened.json", **options)


@st.composite
def launch_lists(draw: st.DrawFn, jitter: bool) -> list[Made]:
    launches, begin_ns = [], UNIX_NS
    for _ in range(draw(st.integers(1, 5))):
        length = draw(st.integers(2_000, 40_000))
        spans = [(0, "whole", 0, 0, length)]
        for block in range(BLOCKS):
            for job, iterations in (("load", 3), ("multiply", 3), ("go", 1)):
                for iteration in range(draw(st.integers(0, iterations))):
                    begin, end = sorted(draw(st.tuples(*[st.integers(0, length)] * 2)))
                    spans.append((block, job, iteration, begin, begin if job == "go" else end))
        lead, tail = draw(st.tuples(*[st.integers(0, 1_500)] * 2))
        moved = draw(st.integers(-1_300, 1_300)) if jitter else 0
        launches.append(Made(begin_ns, spans, lead, tail, moved))
        begin_ns += length + draw(st.integers(5_000, 1_000_000))
    return launches


@settings(max_examples=40)
@given(launch_lists(jitter=False))
def test_with_exact_clocks_every_span_is_within_its_uncertainty(launches: list[Made]) -> None:
    """The smallest lead is what cannot be told from the offset; the spans themselves are exact to the ns."""
    with tempfile.TemporaryDirectory() as folder:
        overlay = overlay_of(Path(folder), launches)
        offset = overlay.offset
        assert offset.offset_ns == OFFSET_NS - min(made.lead for made in launches)
        assert offset.low_ns <= OFFSET_NS <= offset.high_ns
        assert not offset.shift_ns.any()
        assert shown(overlay.path) == expected(launches, [offset.offset_ns] * len(launches))
        assert overlay.left_out == 0


@settings(max_examples=40)
@given(launch_lists(jitter=True))
def test_spans_lie_in_their_kernels_also_when_the_clocks_are_not_exact(launches: list[Made]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        overlay = overlay_of(Path(folder), launches)
        moves = (overlay.offset.offset_ns + overlay.offset.shift_ns).tolist()
        assert shown(overlay.path) == expected(launches, moves)
        for step, _, _, _, begin, end in shown(overlay.path):
            kernel_begin, kernel_end = launches[step].traced()
            assert kernel_begin <= begin <= end <= kernel_end
        assert_tracks_are_stacks(inside(overlay.path))
        assert abs(overlay.offset.offset_ns - OFFSET_NS) <= 1_300 + 1_500


ONE = [(0, "load", 0, 0, 700), (0, "multiply", 0, 700, 2_000), (1, "load", 1, 32, 64), (2, "go", 0, 96, 96)]


def three(**more: Any) -> list[Made]:
    return [Made(UNIX_NS + 100_000 * number, ONE, **more) for number in range(3)]


def test_a_known_offset_is_recovered_exactly(tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, three(tail=300))
    assert overlay.offset.offset_ns == OFFSET_NS
    assert overlay.offset.spread_ns == 0
    assert overlay.kernels == ("gemm",)
    text = "\n".join(overlay.sentences())
    assert "offset -423,912 ns from stamps to trace, over 3 launches" in text
    assert "residual +0 to +0 ns" in text
    assert "up to 300 ns more" in text
    assert "first stamp 0 ns after its kernel's begin, last 300 ns before its end" in text


def test_the_residual_and_the_launches_that_were_moved_are_told(tmp_path: Path) -> None:
    launches = three(tail=100)
    launches[1].jitter, launches[2].jitter = 1_000, -400
    overlay = overlay_of(tmp_path, launches)
    # Bounds of each alone, from the true offset: 0 to 100, 1,000 to 1,100, -400 to -300; the median is 0.
    assert overlay.offset.offset_ns == OFFSET_NS
    assert (overlay.offset.shift_ns).tolist() == [0, 1_000, -300]
    assert overlay.offset.spread_ns == 1_400
    assert "2 launches moved by up to 1,000 ns" in "\n".join(overlay.sentences())


def test_stamps_longer_than_their_kernel_stand_out_and_are_told(tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, three(lead=-40, tail=-60))
    assert shown(overlay.path) == expected(three(), [OFFSET_NS - 10] * 3)
    assert "stamps stand out of their kernels by up to 50 ns" in "\n".join(overlay.sentences())


def test_the_trace_stays_as_it_is_byte_for_byte(tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, three())
    before, after = (tmp_path / "trace.json").read_text(), (tmp_path / "opened.json").read_text()
    head, tail = before[: before.index("]")], before[before.index("]") :]
    assert after.startswith(head)
    assert after.endswith(tail)
    assert len(events_in(overlay.path)) == len(events_in(tmp_path / "trace.json")) + overlay.events
    assert list(tmp_path.glob("*.part")) == []


def test_tracks_are_named_and_spans_say_what_they_are(tmp_path: Path) -> None:
    launches = three()
    for made in launches:
        made.payloads = {(0, 0): 32_768}
    overlay = overlay_of(tmp_path, launches)
    events = events_in(overlay.path)
    (process,) = [event for event in events if event.get("args", {}).get("name") == "inside gemm"]
    pid = process["pid"]
    assert pid not in {event["pid"] for event in OTHER_EVENTS}
    names = [
        event["args"]["name"] for event in events if (event["pid"], event["name"]) == (pid, "thread_name")
    ]
    assert names == [
        "SM 10 warp 0 producer",
        "SM 10 warp 0 producer +1",
        "SM 10 warp 1 consumer",
        "SM 20 tile",
    ]
    first = [event for event in inside(overlay.path) if event["args"]["step"] == 0]
    (load,) = [event for event in first if event["name"] == "load" and event["args"]["block"] == 0]
    assert load["cat"] == "load"
    assert load["args"] == {
        "op": "gemm",
        "step": 0,
        "launch": 0,
        "block": 0,
        "sm": 10,
        "iteration": 0,
        "payload": 32_768,
    }
    (go,) = [event for event in first if event["name"] == "go"]
    assert (go["ph"], go["s"]) == ("i", "t")
    assert "iteration" not in go["args"]
    (labels,) = [event["args"]["labels"] for event in events if event["name"] == "process_labels"]
    assert "offset -423,912 ns" in labels


def test_tracks_can_be_blocks_and_only_some(tmp_path: Path) -> None:
    overlay = overlay_of(tmp_path, three(), by="block", blocks=[0, 2, 1 << 20])
    names = [event["args"]["name"] for event in events_in(overlay.path) if event["name"] == "thread_name"]
    assert names == ["block 0 warp 0 producer", "block 0 warp 1 consumer", "block 2 tile"]
    assert {event["args"]["block"] for event in inside(overlay.path)} == {0, 2}


def test_two_kernels_have_a_process_each_and_one_offset(tmp_path: Path) -> None:
    launches = three()
    launches[1].kernel = "softmax"
    overlay = overlay_of(tmp_path, launches)
    assert overlay.kernels == ("gemm", "softmax")
    assert overlay.offset.offset_ns == OFFSET_NS
    assert shown(overlay.path) == expected(launches, [OFFSET_NS] * 3)
    assert len({event["pid"] for event in inside(overlay.path)}) == 2


def test_a_span_without_an_end_is_left_out_and_counted(tmp_path: Path) -> None:
    launches = three()
    run = tmp_path / "run"
    builder = JournalBuilder(run, TABLE, BLOCKS, anchor_ns=UNIX_NS)
    slots = np.zeros((BLOCKS, TABLE.slots), dtype=np.uint64)
    slots[0, begin_slot("load", 0)] = UNIX_NS + 5
    slots[0, begin_slot("whole", 0) : begin_slot("whole", 0) + 2] = UNIX_NS, UNIX_NS + 2_000
    headers = np.full(BLOCKS, UNIX_NS, dtype=np.uint64)
    builder.launch(LaunchStamps(0, 0, slots, headers, kind="gemm"))
    builder.end()
    trace = make_trace(tmp_path / "trace.json", launches[:1])
    overlay = lay_over(run, trace, tmp_path / "opened.json")
    assert overlay.left_out == 1
    assert [event["name"] for event in inside(overlay.path)] == ["whole"]
    assert "1 spans left out" in "\n".join(overlay.sentences())


def test_gzipped_traces_are_read_and_written(tmp_path: Path) -> None:
    run, trace = make_run(tmp_path / "run", three()), make_trace(tmp_path / "trace.json", three())
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    plain = lay_over(run, trace, tmp_path / "opened.json")
    lay_over(run, packed, tmp_path / "opened.json.gz")
    assert gzip.decompress((tmp_path / "opened.json.gz").read_bytes()) == plain.path.read_bytes()


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    events = [kernel_event(GPU_NAME, *made.traced(), base_ns=0) for made in three()]
    (tmp_path / "trace.json").write_text(f"[{', '.join(events)}]")
    overlay = lay_over(make_run(tmp_path / "run", three()), tmp_path / "trace.json", tmp_path / "opened.json")
    assert overlay.offset.offset_ns == OFFSET_NS
    assert len(json.loads(overlay.path.read_text())) == 3 + overlay.events


def test_other_launches_than_those_of_the_trace_are_refused_in_one_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", three())
    trace = make_trace(tmp_path / "trace.json", [*three(), Made(UNIX_NS + 900_000, ONE)])
    with pytest.raises(
        AnalysisError, match="the run has 3 launches of gemm, the trace 4: profile exactly"
    ) as refused:
        lay_over(run, trace, tmp_path / "opened.json")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "opened.json").exists()


def test_a_trace_of_another_execution_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", three())
    others = three()
    others[2].jitter = 70_000
    with pytest.raises(AnalysisError, match=r"launch 2 lies 70\.0 us away from its kernel"):
        lay_over(run, make_trace(tmp_path / "trace.json", others), tmp_path / "opened.json")


def test_a_kernel_of_another_name_is_found_by_names(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", three())
    events = [kernel_event("mine_kernel_0d1d", *made.traced()) for made in three()]
    trace = tmp_path / "trace.json"
    trace.write_text(trace_text(events))
    with pytest.raises(
        AnalysisError, match="the trace has no kernel gemm; it has fill, mine_kernel_0d1d: say"
    ):
        lay_over(run, trace, tmp_path / "opened.json")
    overlay = lay_over(run, trace, tmp_path / "opened.json", names={"gemm": "mine_kernel_0d1d"})
    assert overlay.offset.offset_ns == OFFSET_NS


def test_of_several_gpus_one_must_be_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", three())
    events = [kernel_event(GPU_NAME, *made.traced(), device=device) for device in (0, 1) for made in three()]
    trace = tmp_path / "trace.json"
    trace.write_text(trace_text(events))
    with pytest.raises(AnalysisError, match="devices 0, 1: say which"):
        lay_over(run, trace, tmp_path / "opened.json")
    assert lay_over(run, trace, tmp_path / "opened.json", device=1).offset.offset_ns == OFFSET_NS


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "neither an object nor an array"),
        ("nothing", "neither an object nor an array"),
        ('{"traceEvents": [', "not a trace of torch.profiler"),
        ('{"traceEvents": 7}', "no list of traceEvents"),
        ('{"schemaVersion": 1}', "no list of traceEvents"),
        ('{"traceEvents" []}', "no value for 'traceEvents'"),
        ('{"traceEvents": []', "it ends behind 'traceEvents'"),
        ("[" * 100_000, "not a trace of torch.profiler"),
        ('[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1}]', "kernel gemm has no ts or no dur"),
        ('[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": "1", "dur": 2}]', "no ts or no dur"),
        ('{"traceEvents": [], "baseTimeNanoseconds": []}', "not a trace of torch.profiler"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(TraceFileError, match=complaint) as refused:
        ChromeTrace(tmp_path / "trace.json").kernels()
    assert "\n" not in str(refused.value)


def test_options_and_files_that_cannot_be_are_refused_in_one_line(tmp_path: Path) -> None:
    run, trace = make_run(tmp_path / "run", three()), make_trace(tmp_path / "trace.json", three())
    cases: list[tuple[type[MusetraceError], str, dict[str, Any]]] = [
        (UsageError, "tracks by 'warp'", {"by": "warp"}),
        (UsageError, "is the trace itself", {"opened": trace}),
        (TraceFileError, "cannot read", {"trace": tmp_path / "none.json"}),
        (TraceFileError, "cannot read", {"trace": tmp_path / "cut.json.gz"}),
        (TraceFileError, "cannot write", {"opened": tmp_path / "none" / "opened.json"}),
        (AnalysisError, "has no rank 7", {"rank": 7}),
    ]
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(trace.read_bytes())[:-9])
    for error, complaint, options in cases:
        with pytest.raises(error, match=complaint) as refused:
            lay_over(**{"run": run, "trace": trace, "opened": tmp_path / "opened.json", **options})
        assert "\n" not in str(refused.value)
    assert trace.read_text() == trace_text([kernel_event(GPU_NAME, *made.traced()) for made in three()])


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("gemm(__nv_bfloat16 const*, __nv_bfloat16 const*, float*, int, int, void*)", "gemm"),
        ("void (anonymous namespace)::gemm<4, float>(float const*)", "gemm"),
        (
            "void at::native::vectorized<4, std::array<char*, 1ul> >(int, std::array<char*, 1ul>)",
            "vectorized",
        ),
        ("matmul", "matmul"),
        ("nvjet_tst_128x64", "nvjet_tst_128x64"),
    ],
)
def test_the_function_of_a_kernel_is_found(demangled: str, name: str) -> None:
    assert function_name(demangled) == name


@given(st.integers(-(10**18), 10**19))
def test_times_are_written_exactly(time_ns: int) -> None:
    assert Decimal(microseconds(time_ns)) * 1000 == time_ns
