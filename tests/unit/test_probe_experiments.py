"""The experiments of a GPU: the facts that Python makes of samples whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from musetrace.errors import DeviceError, UsageError
from musetrace.probe.clocks import line_residual_ns
from musetrace.probe.delays import DELAYS_US, delay_errors, right_share, verdict
from musetrace.probe.experiments import EXPERIMENTS, chosen, run
from musetrace.probe.facts import Fact, Outcome
from musetrace.probe.gpu import Gpu, gpu_is_usable, require_gpu
from musetrace.probe.launches import gaps_ns
from musetrace.probe.stamps import extra_us
from tests.unit import fake_probe
from tests.unit.fake_probe import FakeProbe, install


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> FakeProbe:
    return install(monkeypatch)


def outcome(name: str, gpu: Gpu | None = None) -> Outcome:
    (found,) = run(gpu or require_gpu(quick=True), chosen("cuda", [name]))
    assert found.state == "measured", found.why
    return found


def facts(experiment: str, /, **wanted: Any) -> list[Fact]:
    return [
        one
        for one in outcome(experiment).facts
        if all(getattr(one, field) == value for field, value in wanted.items())
    ]


def median(experiment: str, /, **wanted: Any) -> float:
    (one,) = facts(experiment, **wanted)
    return one.median


@pytest.mark.usefixtures("probe")
def test_the_tick_divides_all_steps_and_reads_are_counted_one_by_one() -> None:
    assert median("timer", name="tick") == 32
    (step,) = facts("timer", name="step")
    assert (step.p10, step.median, step.p90) == (32, 32, 64)
    assert step.note == "75 % of the steps are one tick"
    assert median("timer", name="read_cost", case="%globaltimer") == fake_probe.READ_CYCLES
    assert median("timer", name="read_cost", case="clock64") == fake_probe.READ_CYCLES / 2


@pytest.mark.usefixtures("probe")
def test_the_unix_offset_is_bounded_by_all_brackets() -> None:
    """The read comes 1,000 ns into brackets of 2,000 ns and more: the offset is known to 1,000."""
    assert median("unix_offset", name="offset") == fake_probe.UNIX_OFFSET_NS
    assert median("unix_offset", name="offset_error") == 1000


@pytest.mark.usefixtures("probe")
def test_the_clock_rate_is_that_of_cycles_by_ns() -> None:
    assert median("sm_clock", name="rate", case="idle") == pytest.approx(2.0)
    assert median("sm_clock", name="rate", case="HMMA") == pytest.approx(1.8)
    assert median("sm_clock", name="line_error", case="HMMA") == pytest.approx(0, abs=1)
    assert "under tensor-core load the SM clock is -10.0 % of what it is idle" in outcome("sm_clock").notes


def test_the_line_error_is_the_distance_from_the_line_through_first_and_last() -> None:
    """2 GHz in the first half, 1 GHz in the second: the line between the ends is 1.5 GHz."""
    pairs = np.array([[[10**18, 5], [10**18 + 1000, 2005], [10**18 + 2000, 3005]]])
    assert line_residual_ns(pairs)[0] == pytest.approx([0, 1000 - 2000 / 1.5, 0])


@pytest.mark.usefixtures("probe")
def test_delays_have_the_errors_that_were_put_in() -> None:
    for delay_us in DELAYS_US:
        # The fake's spin lasts a whole number of ticks and says so; its loops are 5 ns short by %globaltimer.
        at = {"at": delay_us, "name": "error"}
        assert median("known_delays", case="spin, %globaltimer, idle", **at) == 0
        assert median("known_delays", case="loop, %globaltimer, HMMA", **at) == -5
        assert median("known_delays", case="loop, SM cycles, idle", **at) == pytest.approx(0, abs=0.5)
        # A tenth of a length of whole turns of 40 ns.
        tenth = -0.1 * 40 * round(delay_us * 1000 / 40)
        assert median("known_delays", case="loop, SM cycles, HMMA", **at) == pytest.approx(tenth, abs=0.5)
    assert outcome("known_delays").notes[-1].startswith("%globaltimer is the better clock")
    # A tick is 32 ns: 5 ns are right; a tenth is right of no delay, for 100 ns of 1 us are more than 42.
    assert median("known_delays", name="right", case="loop, %globaltimer, HMMA") == 100
    assert median("known_delays", name="right", case="loop, SM cycles, HMMA") == 0


def test_delay_errors_by_hand() -> None:
    """One block, one delay. Anchors: 1,000 ns and 2,500 cycles apart, so a cycle is 0.4 ns."""
    anchors = np.array([[[10**18, 100], [10**18 + 1000, 2600]]], dtype=np.uint64)
    spin = [10**18 + 96, 340, 10**18 + 192, 590, 100]
    loop = [10**18 + 320, 900, 10**18 + 480, 1300, 0]
    stamps = np.array([[[[spin]], [[loop]]]], dtype=np.uint64)
    found = delay_errors(stamps, np.array([[[1200], [1216]]]), anchors, calibration=8)
    # Known: 100 ns, and (1200 + 1216) / 2 / 8 = 151. By %globaltimer 96 and 160, by cycles 250 and 400
    # of 0.4 ns.
    assert found.errors_ns[:, :, 0, 0].tolist() == [[-4, 9], [0, 9]]
    # On the line: (340 - 100) x 0.4 = 96, 320 for the loop's begin; 196 and 480 for the ends.
    assert sorted(found.line_ns.tolist()) == [-4, 0, 0, 0]
    later = anchors + np.array([1_000_000, 2_000_000], dtype=anchors.dtype)
    moved = stamps + np.array([1_000_000, 2_000_000] * 2 + [0], dtype=stamps.dtype)
    two = delay_errors(
        np.concatenate([stamps, moved]), np.array([[[1200], [1216]]] * 2), np.concatenate([anchors, later]), 8
    )
    assert sorted(two.line_ns.tolist()) == [-4, -4, 0, 0, 0, 0, 0, 0]
    assert found.drift.tolist() == pytest.approx([1216 / 1200 - 1])


def test_a_delay_is_right_to_a_tick_and_one_percent() -> None:
    """At 1, 2, 5, 10 and 50 us that is 42, 52, 82, 132 and 532 ns."""
    assert right_share(np.array([[42, -42], [52, 53], [82, 83], [-132, 0], [532, -533.0]]), 32) == 0.7


def test_cycles_are_chosen_only_when_better_everywhere() -> None:
    better = np.array([[32.0, 32.0], [5.0, 9.0]])
    once_worse = np.array([[32.0, 32.0], [5.0, 700.0]])
    assert verdict({"idle": better, "HMMA": better})[-1].startswith(
        "SM cycles between anchors are the better"
    )
    assert verdict({"idle": better, "HMMA": once_worse})[-1].startswith("%globaltimer is the better clock")
    assert (
        "9 of 10 loops are right to 32 ns by %globaltimer and 700 ns by SM cycles"
        in verdict({"HMMA": once_worse})[1]
    )


@pytest.mark.usefixtures("probe")
def test_what_stamps_add_is_free_of_a_steady_drift() -> None:
    for setting in ("plain, no output", "plain, output", "PDL, no output", "PDL, output"):
        for case in ("off", "read", "store", "register"):
            added = median("stamp_cost", name="added", case=f"{case}, {setting}")
            assert added == pytest.approx(fake_probe.ADDED_US[case], abs=1e-4)
    (store,) = facts("stamp_cost", name="added", case="store, plain, no output")
    # 1.5 us of 166 stamps are 9.04 ns each.
    assert store.note.endswith("+9.0 ns a stamp")
    assert store.note.startswith("+3.7")


def test_rounds_are_compared_within_themselves() -> None:
    us = np.array([[10, 14, 20, 24], [12, 14, 21, 25]], dtype=np.float32)
    assert extra_us(us).tolist() == [[1, 1]]


@pytest.mark.usefixtures("probe")
def test_the_stream_finds_the_ceiling_and_what_it_takes() -> None:
    assert median("stream", name="rate", at=16) == pytest.approx(1.5)
    assert median("stream", name="rate", at=192) == pytest.approx(4.5)
    assert outcome("stream").notes[0] == "48 KiB in flight per SM give all there is, to 1 %"


@pytest.mark.usefixtures("probe")
def test_l2_takes_the_last_block_and_finds_what_fits() -> None:
    """Each MiB takes 240 ns cold, 130 loaded as long as it fits."""
    assert median("l2", name="time", case="cold", at=8) == pytest.approx(8 * 0.24)
    assert median("l2", name="time", case="loaded", at=8) == pytest.approx(8 * 0.13)
    assert median("l2", name="effective_capacity") == fake_probe.L2_FITS_MIB


@pytest.mark.usefixtures("probe")
def test_hops_are_half_round_trips_once_both_sides_are_in_step() -> None:
    for kib in (0, 16, 48, 192):
        expected = 280 + 100 * kib / 16
        (one,) = facts("hop", case="Lamport slot", at=kib)
        assert (one.p10, one.median, one.p90) == pytest.approx((expected,) * 3)
    assert median("hop", case="release, acquire") == pytest.approx(430)


@pytest.mark.usefixtures("probe")
def test_fences_polls_and_barriers_are_ns() -> None:
    assert median("fence", case="__threadfence, nothing stored", at=0) == pytest.approx(210)
    assert median("fence", case="16 bytes stored, then __threadfence", at=160) == pytest.approx(7210)
    assert median("poll", case="ld.acquire.gpu", at=48) == pytest.approx(144)
    assert median("barrier") == pytest.approx(930)


def test_gaps_between_launches_by_hand() -> None:
    """Two blocks; six launches, the first five of which are left out but for the last one's end."""
    one = [[[0, 0, 50], [5, 5, 60]]]
    times = np.array([one[0]] * 5 + [[[100, 110, 150], [105, 120, 160]], [[170, 171, 200], [180, 190, 240]]])
    gaps = gaps_ns(times[None])
    assert {name: values.tolist() for name, values in gaps.items()} == {
        "first_begins": [[10]],
        "last_begins": [[20]],
        "all_past_wait": [[30]],
        "period": [[80]],
    }


@pytest.mark.usefixtures("probe")
def test_boundaries_are_those_of_the_graph() -> None:
    meanings = {
        "plain": "plain",
        "programmatic": "PDL, no trigger",
        "early_trigger": "PDL, trigger and wait first",
    }
    for kind, case in meanings.items():
        assert median("boundary", name="first_begins", case=case) == fake_probe.GAP_NS[kind]
        assert median("boundary", name="last_begins", case=case) == fake_probe.GAP_NS[kind] + 3 * 32
    period = 5000 + 96 + fake_probe.PAST_WAIT_NS
    assert median("boundary", name="period", case=meanings["early_trigger"]) == period
    assert median("boundary", name="empty_launch", case="plain") == pytest.approx(550)


@pytest.mark.usefixtures("probe")
def test_bodies_have_their_pace_and_the_first_pass_stands_alone() -> None:
    """64 instructions a KiB; what does not fit into 128 KiB takes twice the time."""
    pace = {"name": "cycles_per_instruction"}
    assert median("instruction_cache", case="alone, 1 warp", at=100, **pace) == 1
    assert median("instruction_cache", case="alone, 12 warps", at=100, **pace) == 3
    assert median("instruction_cache", case="alone, 12 warps", at=200, **pace) == 6
    assert median("instruction_cache", case="stitched, 12 warps", at=200, **pace) == 6
    # 100 KiB: 6,400 instructions at 3 cycles of half a ns alone, twice that when stitched.
    assert median("instruction_cache", case="100 KiB alone, 12 warps") == pytest.approx(9.6)
    for part in ("first", "second"):
        stitched = median("instruction_cache", case=f"{part} of 100 + 100 KiB, 12 warps")
        assert stitched == pytest.approx(19.2)
    first = median("instruction_cache", name="first_pass", case="alone, 1 warp", at=100)
    assert first == pytest.approx(32)


@pytest.mark.usefixtures("probe")
def test_clusters_are_counted_in_blocks_too() -> None:
    (two,) = facts("clusters", case="of 2 blocks")
    assert (two.median, two.note) == (2, "4 blocks of 4 SMs")
    assert median("clusters", case="of 16 blocks") == 0


def test_one_gpu_skips_the_way_to_another(probe: FakeProbe) -> None:
    (skipped,) = run(require_gpu(), chosen("cuda", ["peer"]))
    assert (skipped.state, skipped.why) == (
        "skipped",
        "needs a second GPU that reaches this one's memory and is reached",
    )
    probe.peer = 1
    (one,) = facts("peer")
    assert (one.median, one.case) == (pytest.approx(1900), "GPU 0 and 1")


def test_one_failure_is_one_row(probe: FakeProbe) -> None:
    probe.broken["hop_cycles"] = RuntimeError(
        "block 3 waited 20000000 ns for\nanother block's slot and gave up"
    )
    outcomes = run(require_gpu(quick=True), EXPERIMENTS["cuda"])
    failed = [one for one in outcomes if one.state == "failed"]
    assert [(one.name, one.why) for one in failed] == [
        ("hop", "block 3 waited 20000000 ns for another block's slot and gave up")
    ]
    assert [one.name for one in outcomes] == [one.name for one in EXPERIMENTS["cuda"]]
    assert all(one.facts for one in outcomes if one.state == "measured")


def test_samples_that_are_no_numbers_are_a_failure_and_no_fact(probe: FakeProbe) -> None:
    probe.BODIES_KIB = ((0, 0),)  # type: ignore[misc]
    with np.errstate(all="ignore"):
        (found,) = run(require_gpu(quick=True), chosen("cuda", ["instruction_cache"]))
    assert found.state == "failed"


def test_experiments_are_chosen_by_name_in_their_own_order() -> None:
    assert [one.name for one in chosen("cuda", ["hop", "timer", "hop"])] == ["timer", "hop"]
    with pytest.raises(UsageError, match=r"no experiment of cpu is called 'stream': there are clock, "):
        chosen("cpu", ["hop", "stream"])


def test_every_experiment_has_a_name_of_its_own_and_a_title() -> None:
    for there in EXPERIMENTS.values():
        assert len({one.name for one in there}) == len(there)
        assert all(one.title and not one.title.endswith(".") for one in there)


def test_another_gpu_than_hopper_is_refused_by_name(probe: FakeProbe) -> None:
    assert gpu_is_usable()
    probe.capability = (8, 0)
    with pytest.raises(DeviceError, match=r"^NVIDIA H200 has compute capability 8\.0, and the probe's"):
        require_gpu()
    assert not gpu_is_usable()


def test_a_gpu_that_fails_at_once_is_one_line(probe: FakeProbe) -> None:
    probe.broken["device_facts"] = RuntimeError("asking for the GPU: unknown error")
    with pytest.raises(DeviceError, match="^the GPU failed: asking for the GPU: unknown error; see"):
        require_gpu()
