"""A run's tables for people who work with them: names instead of numbers, times absolute and relative."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from musetrace.errors import AnalysisError
from musetrace.store.decode import Flag

if TYPE_CHECKING:
    from musetrace.store.run import Run

Chosen = int | Collection[int] | None

MOST_ROWS = 5_000_000

_NAME = pa.dictionary(pa.int16(), pa.string())
_FLAGS = [flag.name.lower() for flag in Flag]

SPANS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("step", pa.uint32()),
        ("launch", pa.uint16()),
        ("layer", pa.int16()),
        ("launch_kind", _NAME),
        ("op", _NAME),
        ("kind", _NAME),
        ("job", _NAME),
        ("block", pa.uint16()),
        ("sm", pa.uint16()),
        ("warp", pa.uint8()),
        ("begin_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("from_step_ns", pa.int64()),
        ("from_launch_ns", pa.int64()),
        ("flag", _NAME),
    ]
)
INSTANCES = [("iteration", pa.uint16()), ("payload", pa.uint32())]
LAUNCHES = pa.schema(
    [
        ("rank", pa.uint32()),
        ("step", pa.uint32()),
        ("launch", pa.uint16()),
        ("layer", pa.int16()),
        ("kind", _NAME),
        ("begin_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("from_step_ns", pa.int64()),
        ("gap_ns", pa.int64()),
        ("blocks", pa.uint16()),
        ("stale_blocks", pa.uint16()),
        ("spans", pa.uint32()),
    ]
)
STEPS = pa.schema(
    [
        ("rank", pa.uint32()),
        ("step", pa.uint32()),
        ("begin_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("host_begin_ns", pa.int64()),
        ("host_end_ns", pa.int64()),
        ("host_dur_ns", pa.int64()),
        ("launches", pa.uint16()),
        ("spans", pa.uint32()),
        ("tokens", pa.uint16()),
        ("output", pa.string()),
    ]
)
JOBS = pa.schema(
    [("job", pa.string()), ("op", pa.string()), ("kind", pa.string()), ("awaits", pa.string())]
    + [("iterations", pa.uint32()), ("instant", pa.bool_())]
)

Ints = npt.NDArray[np.int64]


def named_table(run: Run, name: str, rank: Chosen, step: Chosen, most_rows: int | None) -> pa.Table:
    """What :meth:`musetrace.store.run.Run.table` returns."""
    if name == "jobs":
        return _jobs(run)
    if name not in _TABLES:
        raise AnalysisError(f"there is no table {name!r}: there are {', '.join(_TABLES)}, jobs")
    schema, of_rank = _TABLES[name]
    if name == "spans" and run.job_table.has_instances:
        schema = pa.schema([*schema, *(pa.field(*one) for one in INSTANCES)])
    steps = _chosen_steps(run, _numbers(rank), _numbers(step))
    if name == "spans":
        _check_size(run, steps, most_rows)
    batches = [
        pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
        for one, of in steps.items()
        for columns in of_rank(run, one, of)
    ]
    return pa.Table.from_batches(batches, schema).unify_dictionaries()


def _numbers(chosen: Chosen) -> tuple[int, ...] | None:
    return None if chosen is None else (chosen,) if isinstance(chosen, int) else tuple(chosen)


def _chosen_steps(
    run: Run, ranks: tuple[int, ...] | None, steps: tuple[int, ...] | None
) -> dict[int, list[int]]:
    """The steps in scope of each rank in scope, in order."""
    wanted = None if steps is None else set(steps)
    found = {
        rank: [step for step in run.step_ids(rank) if wanted is None or step in wanted]
        for rank in (run.ranks if ranks is None else sorted(set(ranks)))
    }
    if wanted and not any(found.values()):
        raise AnalysisError(f"{run.path} has none of the steps that were asked for on these ranks")
    return found


def _check_size(run: Run, steps: Mapping[int, Collection[int]], most_rows: int | None) -> None:
    if most_rows is None:
        return
    rows = 0
    for rank, of in steps.items():
        counts = _by_step(run.steps(rank), "spans")
        rows += sum(counts[step] for step in of)
    if rows > most_rows:
        raise AnalysisError(
            f"that is {rows:,} spans, more than {most_rows:,}: choose ranks or steps, or give most_rows=None"
        )


def _by_step(table: pa.Table, column: str) -> dict[int, int]:
    return dict(zip(table["step"].to_pylist(), table[column].to_pylist(), strict=True))


Columns = dict[str, pa.Array]


def _spans(run: Run, rank: int, steps: Sequence[int]) -> Iterator[Columns]:
    """A batch a step."""
    bases = _by_step(run.steps(rank), "base_ns")
    launches = _ordered(run.launches(rank))
    for step in steps:
        first, past = np.searchsorted(launches["step"], (step, step + 1))
        of_step = {name: column[first:past] for name, column in launches.items()}
        yield _spans_of_step(run, rank, step, bases[step], of_step)


def _spans_of_step(run: Run, rank: int, step: int, base_ns: int, launches: dict[str, Any]) -> Columns:
    batch = run.spans(rank, step)
    of = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
    begin, dur = of["begin"].astype(np.int64), of["dur"].astype(np.int64)
    at = np.searchsorted(launches["launch"], of["launch"])
    launch_begin = launches["begin_ns"][at]
    timed = np.full(len(begin), base_ns > 0)
    job, names = _known_jobs(run, of["job"])
    table = run.job_table
    return {
        **_place(rank, np.full(len(begin), step)),
        "launch_kind": _dictionary(at, launches["kind"].tolist()),
        "op": _dictionary(job, [table.op_name(one) for one in names]),
        "kind": _dictionary(job, [table.kind_name(one) for one in names]),
        "job": _dictionary(job, [table.job_name(one) for one in names]),
        "flag": pa.DictionaryArray.from_arrays(of["flag"].astype(np.int16), _FLAGS),
        "begin_ns": _where(timed, base_ns + begin),
        "end_ns": _where(timed, base_ns + begin + dur),
        "dur_ns": pa.array(dur),
        "from_step_ns": _where(timed, begin),
        "from_launch_ns": _where(timed & (launch_begin > 0), base_ns + begin - launch_begin),
        **{name: batch.column(name) for name in ("launch", "layer", "block", "sm", "warp")},
        **_instances(of),
    }


def _instances(of: Mapping[str, npt.NDArray[Any]]) -> Columns:
    if "iteration" not in of:
        return {}
    payload = pa.array(of["payload"], mask=of["has_payload"] == 0)
    return {"iteration": pa.array(of["iteration"]), "payload": payload}


def _known_jobs(run: Run, job: npt.NDArray[Any]) -> tuple[Ints, list[int]]:
    """Each job as a place in a list of ids: those of the job table, then others as they occur."""
    known = len(run.job_table.jobs)
    others = np.unique(job[job >= known])
    places = job.astype(np.int64)
    places[job >= known] = known + np.searchsorted(others, job[job >= known])
    return places, [*range(known), *others.tolist()]


def _dictionary(places: Ints, names: list[str]) -> pa.DictionaryArray:
    """A column of names, each once in the dictionary."""
    distinct = list(dict.fromkeys(names))
    index = np.array([distinct.index(name) for name in names], dtype=np.int16)
    chosen = index[places] if len(names) else np.zeros(0, dtype=np.int16)
    return pa.DictionaryArray.from_arrays(pa.array(chosen), pa.array(distinct, pa.string()))


def _launches(run: Run, rank: int, steps: Sequence[int]) -> Iterator[Columns]:
    """One batch."""
    every = _ordered(run.launches(rank))
    chosen = np.isin(every["step"], np.array(steps, dtype=np.int64))
    of = {name: column[chosen] for name, column in every.items()}
    begin, end = of["begin_ns"], of["end_ns"]
    stamped = (begin > 0) & (end >= begin)
    gap, has_gap = np.zeros(len(begin), dtype=np.int64), np.zeros(len(begin), dtype=np.bool_)
    gap[:-1] = begin[1:] - end[:-1]
    follows = (np.diff(of["step"]) == 0) & (np.diff(of["launch"]) == 1)
    has_gap[:-1] = stamped[1:] & stamped[:-1] & follows
    bases = _by_step(run.steps(rank), "base_ns")
    base = np.array([bases[step] for step in of["step"].tolist()], dtype=np.int64)
    yield {
        **_place(rank, of["step"]),
        "kind": _dictionary(np.arange(len(begin)), of["kind"].tolist()),
        "begin_ns": _where(stamped, begin),
        "end_ns": _where(stamped, end),
        "dur_ns": _where(stamped, end - begin),
        "from_step_ns": _where(stamped, begin - base),
        "gap_ns": _where(has_gap, gap),
        **_plain(of, LAUNCHES, "launch", "layer", "blocks", "stale_blocks", "spans"),
    }


def _ordered(table: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """The columns of a rank's launches as arrays, by step and launch."""
    of: dict[str, npt.NDArray[Any]] = {
        name: table[name].to_numpy().astype(np.int64) for name in table.schema.names if name != "kind"
    }
    of["kind"] = np.array(table["kind"].to_pylist(), dtype=object)
    order = np.lexsort((of["launch"], of["step"]))
    return {name: column[order] for name, column in of.items()}


def _steps(run: Run, rank: int, steps: Sequence[int]) -> Iterator[Columns]:
    """One batch."""
    table = run.steps(rank)
    chosen = np.isin(table["step"].to_numpy(), np.array(steps, dtype=np.int64))
    outputs = table["output"].to_pylist() if "output" in table.schema.names else [""] * table.num_rows
    numbers = [name for name in table.schema.names if name != "output"]
    of = {name: table[name].to_numpy().astype(np.int64)[chosen] for name in numbers}
    columns = {**_place(rank, of["step"]), **_plain(of, STEPS, "launches", "spans", "tokens")}
    hashes = [one or None for one, is_chosen in zip(outputs, chosen.tolist(), strict=True) if is_chosen]
    columns["output"] = pa.array(hashes, pa.string())
    for prefix, first, last in (("", "base_ns", "end_ns"), ("host_", "host_begin_ns", "host_end_ns")):
        timed = (of[first] > 0) & (of[last] >= of[first])
        times = {"begin_ns": of[first], "end_ns": of[last], "dur_ns": of[last] - of[first]}
        columns |= {prefix + name: _where(timed, time) for name, time in times.items()}
    yield columns


def _plain(of: Mapping[str, npt.NDArray[Any]], schema: pa.Schema, *names: str) -> Columns:
    return {name: pa.array(of[name]).cast(schema.field(name).type) for name in names}


def _jobs(run: Run) -> pa.Table:
    table = run.job_table
    rows = [
        {
            "job": job.name,
            "op": job.op,
            "kind": job.kind,
            "awaits": None if job.awaits is None else table.job_name(job.awaits),
            "iterations": job.iterations,
            "instant": job.instant,
        }
        for job in table.jobs
    ]
    return pa.Table.from_pylist(rows, schema=JOBS)


def _place(rank: int, step: npt.NDArray[Any]) -> Columns:
    return {
        "rank": pa.array(np.full(len(step), rank, dtype=np.uint32)),
        "step": pa.array(step.astype(np.uint32)),
    }


def _where(known: npt.NDArray[np.bool_], values: Ints) -> pa.Array:
    """The values, null where they are not known."""
    return pa.array(values.astype(np.int64), mask=~known)


_TABLES: dict[str, tuple[pa.Schema, Callable[[Run, int, Sequence[int]], Iterator[Columns]]]] = {
    "spans": (SPANS, _spans),
    "launches": (LAUNCHES, _launches),
    "steps": (STEPS, _steps),
}
