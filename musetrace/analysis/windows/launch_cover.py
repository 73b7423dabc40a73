"""What each block of a launch does most, kept for pictures of many steps."""

from __future__ import annotations

from collections.abc import Sequence

from musetrace.analysis.kept_sums.question import Sums
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.run_like import RunLike
from musetrace.analysis.spans.selection import StepSpans
from musetrace.analysis.windows.job_strips import JobStrips


def _accumulate(run: RunLike, spans: Sequence[StepSpans]) -> list[State]:
    strips = JobStrips.of(run.job_table)
    return [_state(one, run.blocks, strips) for one in spans]


def _state(spans: StepSpans, blocks: int, strips: JobStrips) -> State:
    """One (rank, step).

    ``cover`` by rank, step, launch and block is one number that nothing is ever added to. For strip s it has
    at bits ``16 s`` the op that takes most of the block's time (``JobStrips.ops``; 255: none) and at bits
    ``16 s + 8`` how much of the launch the strip covers, in 1/255, rounded up.
    """
    state, launches = State(), len(spans.launch_id)
    instance, packed = spans.by_instance(blocks).launch_cover(*strips.by_strip[:3])
    if len(instance):
        launch = spans.launch_id[instance % launches]
        state.add("cover", spans.rank, spans.step, launch, instance // launches, sums=packed)
    return state


LAUNCH_COVER = Sums("launch_cover", 1, _accumulate)
