"""Times of everything in a launch that moves bytes, as sums that merge."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from musetrace.analysis.engines.moved_parts import Part, PartsOfLaunch, parts_of_launch, stops_of
from musetrace.analysis.engines.moved_spans import moved_spans
from musetrace.analysis.kept_sums.key_sums import KeySums, nothing_summed
from musetrace.analysis.kept_sums.state import State
from musetrace.analysis.spans.selection import StepSpans
from musetrace.job_bytes import RunBytes
from musetrace.job_table import JobTable

Ints = npt.NDArray[np.int64]

# Of which the times of spans are kept: single jobs, and ops by the first of their jobs.
_LEVELS = {"job": 0, "op": 1}


@dataclass
class Parts:
    """The parts of a run's launches, by the place of their entry in ``moved``."""

    table: JobTable
    moved: RunBytes
    _made: dict[tuple[int, int], PartsOfLaunch] = field(default_factory=dict)

    def entry(self, kind: str, layer: int) -> int:
        """Where the bytes of a launch stand; -1 where they do not."""
        found = self.moved.of(kind, layer)
        return -1 if found is None else next(at for at, one in enumerate(self.moved.launches) if one is found)

    def of(self, entry: int, stops: int) -> PartsOfLaunch:
        """The parts of an entry's launches that have these stops, a bit each."""
        if (entry, stops) not in self._made:
            names = [stop for at, stop in enumerate(stops_of(self.table)) if stops >> at & 1]
            self._made[entry, stops] = parts_of_launch(self.table, self.moved.launches[entry], names)
        return self._made[entry, stops]


def state_of(spans: StepSpans, parts: Parts, blocks: int) -> State:
    """The sums of one (rank, step)."""
    state = State()
    launches = zip(spans.launch_kind.tolist(), spans.launch_layer.tolist(), strict=True)
    entries = np.array([parts.entry(*launch) for launch in launches], dtype=np.int64)
    whole = spans.launch_blocks >= spans.launch_grid
    state.add("partial", 0, sums=int(((entries >= 0) & ~whole).sum()))
    entries = np.where(whole, entries, -1)
    moving = _of_jobs(spans, _moving(parts))
    for level in _LEVELS:
        _add_spans(state, moving, entries, parts, blocks, level)
    _add_phases(state, spans, entries, _stop_ends(spans, parts.table))
    return state


def _moving(parts: Parts) -> npt.NDArray[np.bool_]:
    """bool[jobs]: which move bytes in some launch."""
    names = {name for one in parts.moved.launches for name in (*one.jobs, *one.unknown)}
    return np.array([job.name in names for job in parts.table.jobs], dtype=np.bool_)


def _add_spans(state: State, spans: StepSpans, entries: Ints, parts: Parts, blocks: int, level: str) -> None:
    """Times of the parts that are some jobs; a part goes by the first of them."""
    jobs = len(parts.table.jobs)
    part_of = np.full((len(parts.moved.launches) + 1, jobs), -1, dtype=np.int64)
    for entry in set(entries.tolist()) - {-1}:
        of_entry = parts.of(entry, 0)
        for _, of_part in of_entry.jobs if level == "job" else of_entry.ops:
            part_of[entry, list(of_part)] = of_part[0]
    found = moved_spans(spans, part_of[entries[spans.launch], spans.job], blocks)
    key = _LEVELS[level], entries[found.launch] * jobs + found.part
    state.add("elapsed", *key, found.elapsed)
    state.add("covered", *key, found.covered)
    state.add("block_sum", *key, found.block_sum)
    state.add("pieces", *key, found.pieces)
    state.add("blocks", *key, found.blocks)
    state.add("layers", *key, spans.launch_layer[found.launch])


def _add_phases(state: State, spans: StepSpans, entries: Ints, ends: Ints) -> None:
    """Lengths of launches and of their phases; a launch goes by the stops that it has."""
    launch = np.flatnonzero(entries >= 0)
    entry, wall = entries[launch], (spans.launch_end - spans.launch_begin)[launch]
    seen = ends[:, launch] >= 0
    stops = (1 << np.arange(len(ends))) @ seen.astype(np.int64)
    state.add("launch", entry, wall)
    state.add("launch_blocks", entry, spans.launch_blocks[launch])
    state.add("phase_layers", entry, stops, spans.launch_layer[launch])
    for having in np.unique(stops[stops > 0]).tolist():
        alike = stops == having
        edges = ends[:, launch[alike]][seen[:, alike].any(axis=1)]
        edges = np.concatenate([np.maximum.accumulate(edges), wall[None, alike]])
        lengths = np.diff(edges, axis=0, prepend=0)
        phases = np.repeat(np.arange(len(lengths)), lengths.shape[1])
        state.add("phase", np.tile(entry[alike], len(lengths)), having, phases, lengths.ravel())


@dataclass
class PartTimes:
    """What was measured of one part; no ``elapsed`` and ``block_sum`` of a phase or a launch."""

    layers: set[int] = field(default_factory=set)
    elapsed: list[KeySums] = field(default_factory=list)
    covered: list[KeySums] = field(default_factory=list)
    block_sum: list[KeySums] = field(default_factory=list)
    most_pieces: int = 1
    blocks: int = 0


def times_of(state: State, parts: Parts) -> dict[Part, PartTimes]:
    """By part; parts of entries that are alike in name and bytes are one."""
    found: dict[Part, PartTimes] = {}
    for level, place in _LEVELS.items():
        of_level = {
            name: dict(KeySums.groups(dict(state.sum_of(name, 3).groups()).get(place, nothing_summed(2))))
            for name in ("elapsed", "covered", "block_sum", "pieces", "blocks", "layers")
        }
        for key, covered in of_level["covered"].items():
            entry, job = divmod(key, len(parts.table.jobs))
            of_entry = parts.of(entry, 0).jobs if level == "job" else parts.of(entry, 0).ops
            times = found.setdefault(next(part for part, jobs in of_entry if jobs[0] == job), PartTimes())
            times.covered.append(covered)
            times.elapsed.append(of_level["elapsed"][key])
            times.block_sum.append(of_level["block_sum"][key])
            times.most_pieces = max(times.most_pieces, int(of_level["pieces"][key].keys[0].max()))
            times.blocks = max(times.blocks, int(of_level["blocks"][key].keys[0].max()))
            times.layers.update(of_level["layers"][key].keys[0].tolist())
    _add_launch_times(found, state, parts)
    return found


def _add_launch_times(found: dict[Part, PartTimes], state: State, parts: Parts) -> None:
    """Launches and phases."""
    walls = dict(state.sum_of("launch", 2).groups())
    most_blocks = {entry: int(of.keys[0].max()) for entry, of in state.sum_of("launch_blocks", 2).groups()}
    phases = {entry: dict(of.groups()) for entry, of in state.sum_of("phase", 4).groups()}
    for entry, by_stops in state.sum_of("phase_layers", 3).groups():
        for stops, layers in by_stops.groups():
            of_stops = parts.of(entry, stops)
            lengths: list[tuple[Part | None, KeySums | None]] = [(of_stops.launch, walls.pop(entry, None))]
            for number, of_phase in phases.get(entry, {}).get(stops, nothing_summed(2)).groups():
                lengths.append((of_stops.phases[number], of_phase))
            for part, covered in lengths:
                if part is not None:
                    times = found.setdefault(part, PartTimes())
                    times.covered += [] if covered is None else [covered]
                    times.blocks = max(times.blocks, most_blocks[entry])
                    times.layers.update(layers.keys[0].tolist())


def _stop_ends(spans: StepSpans, table: JobTable) -> Ints:
    """int64[stops, launches]: when the last block is done with each stop, from the launch's begin, or -1."""
    number = {stop: at for at, stop in enumerate(stops_of(table))}
    stop_of = np.array([number.get(job.op, -1) for job in table.jobs], dtype=np.int64)
    at_stops = _of_jobs(spans, stop_of >= 0)
    launch = at_stops.launch
    wall = spans.launch_end - spans.launch_begin
    ends = np.full((len(number), len(wall)), -1, dtype=np.int64)
    end = np.clip(at_stops.end - spans.launch_begin[launch], 0, wall[launch])
    np.maximum.at(ends, (stop_of[at_stops.job], launch), end)
    return ends


def _of_jobs(spans: StepSpans, wanted: npt.NDArray[np.bool_]) -> StepSpans:
    """Some spans; ``wanted`` is bool[jobs]. Jobs that the table does not have are not wanted."""
    chosen = np.flatnonzero(np.append(wanted, False)[np.minimum(spans.job, len(wanted))])
    columns = ("begin", "end", "job", "launch", "block", "warp", "iteration")
    return replace(spans, **{name: getattr(spans, name)[chosen] for name in columns})
