"""Job tables that Python declares: for kernels in Triton, or in CUDA C++ that is compiled at run time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from musetrace.errors import UsageError
from musetrace.job_bytes import check_number
from musetrace.job_table import JOB_KINDS, SCOPES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_ITERATIONS = (1 << 16) - 1
MAX_WARPS = 32


@dataclass(frozen=True)
class Role:
    """Warps ``first`` to ``last`` of a block, which do the same jobs.

    ``stamped_by`` are those of them that stamp (default: the first). With ``owner`` ``block`` the whole block
    has one place for each job, and whichever thread says so stamps it.
    """

    name: str
    first: int
    last: int
    stamped_by: tuple[int, ...] | None = None
    owner: str = "warp"

    @property
    def stampers(self) -> tuple[int, ...]:
        """The warps that stamp."""
        if self.owner == "block":
            return ()
        return (self.first,) if self.stamped_by is None else self.stamped_by


@dataclass(frozen=True)
class NewJob:
    """A job of a role. A ``wait`` names in ``awaits`` the job whose end it waits for, and may say of whom in
    ``scope``. ``bytes`` are those of one launch, where they are always the same. See ``job_table.Job``.
    """

    name: str
    op: str
    kind: str
    role: str
    awaits: str | None = None
    iterations: int = 1
    instant: bool = False
    payload: bool = False
    scope: str | None = None
    bytes: int | None = None


RoleRow = tuple[str, int, int, int, bool]
JobRow = tuple[str, str, int, int, int | None, int, bool, bool, str | None]


def rows_of(
    warps_per_block: int, roles: Sequence[Role], jobs: Sequence[NewJob]
) -> tuple[list[RoleRow], list[JobRow]]:
    """What ``_core.abi.declared_job_table`` takes. Raises UsageError, naming the wrong role or job."""
    if not 1 <= warps_per_block <= MAX_WARPS:
        raise UsageError(f"a block has 1 to {MAX_WARPS} warps, not {warps_per_block}")
    role_ids = _ids("role", [role.name for role in roles])
    job_ids = _ids("job", [job.name for job in jobs])
    return (
        [_role_row(role, warps_per_block) for role in roles],
        [_job_row(job, role_ids, job_ids) for job in jobs],
    )


def _ids(what: str, names: list[str]) -> dict[str, int]:
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(f"{what} {name!r} is not a name: use letters, digits and _")
        if names.count(name) > 1:
            raise UsageError(f"there are two {what}s {name}")
    if not names:
        raise UsageError(f"a job table needs a {what}")
    return {name: number for number, name in enumerate(names)}


def _role_row(role: Role, warps_per_block: int) -> RoleRow:
    if not 0 <= role.first <= role.last < warps_per_block:
        raise UsageError(
            f"role {role.name} has warps {role.first} to {role.last} of a block of {warps_per_block}"
        )
    if role.owner not in ("warp", "block"):
        raise UsageError(f"role {role.name} is owned by {role.owner!r}; it is warp or block")
    outside = [warp for warp in role.stampers if not role.first <= warp <= role.last]
    if outside:
        raise UsageError(f"role {role.name} is stamped by warp {outside[0]}, which is not one of its warps")
    bits = sum(1 << warp for warp in set(role.stampers))
    return role.name, role.first, role.last, bits, role.owner == "block"


def _job_row(job: NewJob, role_ids: dict[str, int], job_ids: dict[str, int]) -> JobRow:
    if job.role not in role_ids:
        raise UsageError(f"job {job.name} is of role {job.role!r}, which there is not")
    if not _NAME.fullmatch(job.op):
        raise UsageError(f"op {job.op!r} of job {job.name} is not a name: use letters, digits and _")
    if job.kind not in JOB_KINDS:
        raise UsageError(f"job {job.name} is of kind {job.kind!r}; there are {', '.join(JOB_KINDS)}")
    if (job.kind == "wait") != (job.awaits is not None):
        raise UsageError(f"job {job.name}: a wait, and nothing else, names the job that it awaits")
    if job.awaits is not None and job.awaits not in job_ids:
        raise UsageError(f"job {job.name} awaits {job.awaits!r}, which there is not")
    if job.scope is not None and (job.scope not in SCOPES or job.kind != "wait"):
        raise UsageError(
            f"job {job.name} has scope {job.scope!r}; a wait, and nothing else, has block, rank or ranks"
        )
    if job.bytes is not None:
        _check_bytes(job)
    if not 1 <= job.iterations <= MAX_ITERATIONS:
        raise UsageError(f"job {job.name} has {job.iterations} iterations; it may have 1 to {MAX_ITERATIONS}")
    awaited = None if job.awaits is None else job_ids[job.awaits]
    kind = JOB_KINDS.index(job.kind)
    options = job.iterations, job.instant, job.payload, job.scope
    return job.name, job.op, kind, role_ids[job.role], awaited, *options


def _check_bytes(job: NewJob) -> None:
    try:
        check_number(job.bytes, f"job {job.name}")
    except ValueError as error:
        raise UsageError(str(error)) from None


def cuda_source(
    type_name: str, table_name: str, warps_per_block: int, roles: Sequence[Role], jobs: Sequence[NewJob]
) -> str:
    """The same table in C++, for a kernel compiled at run time; it goes behind ``musetrace/stamp.cuh``.

    Raises:
        UsageError: it cannot be a table.
    """
    if not _NAME.fullmatch(type_name):
        raise UsageError(f"{type_name!r} is not a name of a type")
    role_rows, job_rows = rows_of(warps_per_block, roles, jobs)
    role_lines = [
        f"ROLE({name}, {first}, {last}, {bits}u{', ::musetrace::abi::kBlock' if owned else ''})"
        for name, first, last, bits, owned in role_rows
    ]
    job_lines = [_job_line(row, role_rows, job_rows) for row in job_rows]
    text = table_name.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"#define {type_name}_ROLES(ROLE) {' '.join(role_lines)}\n"
        f"#define {type_name}_JOBS(JOB) {' '.join(job_lines)}\n"
        f'MUSETRACE_JOB_TABLE({type_name}, "{text}", {warps_per_block}, '
        f"{type_name}_ROLES, {type_name}_JOBS);\n"
    )


def _job_line(row: JobRow, roles: list[RoleRow], jobs: list[JobRow]) -> str:
    name, op, kind, role, awaits, iterations, instant, payload, scope = row
    extras = [extra for extra, on in (("kInstant", instant), ("kPayload", payload)) if on]
    extras += [f"kFrom{scope.capitalize()}"] if scope else []
    extra = " | ".join(f"::musetrace::abi::{extra}" for extra in extras or ["kSpan"])
    awaited = "none" if awaits is None else jobs[awaits][0]
    kind_name = JOB_KINDS[kind].capitalize()
    return f"JOB({name}, {op}, {kind_name}, {roles[role][0]}, {awaited}, {iterations}, {extra})"
