"""Stamps from Triton kernels. Needs triton, which ``import musetrace`` does not.

    import musetrace, musetrace.triton as stamp

    TABLE = musetrace.JobTable.declare(
        "scale", 4, [musetrace.Role("program", 0, 3, owner="block")],
        [musetrace.NewJob("load", "scale", "load", "program", iterations=16)])

    @triton.jit
    def scale(x, ..., region: tl.int64, JOBS: tl.constexpr):
        stamps = stamp.open(region, JOBS)
        for i in range(tiles):
            stamp.begin(stamps, JOBS.load, i)
            tile = tl.load(x + ...)
            stamp.end(stamps, JOBS.load, i)

    with musetrace.record("run") as recorder:
        attached = recorder.attach(TABLE, grid=132, name="scale")
        jobs = stamp.jobs(TABLE, recorder.stamps)       # "off" leaves no code
        with recorder.step(), attached.launch() as stamps:
            scale[(132,)](x, ..., stamps.ptr, JOBS=jobs)

Triton knows no warps: all jobs are the block's, and its first thread stamps them. A stamp stays where it
stands among loads, stores and dots, as long as Triton leaves these there. Triton's software pipelining does
not: with ``num_stages`` above 1, a ``tl.load`` in a loop is begun some iterations earlier, so that a span
around it is the wait for its data, and a span around a ``tl.dot`` may end while the dot still runs.
"""

from __future__ import annotations

from musetrace.triton.jobs import Jobs, Place, jobs
from musetrace.triton.stamps import begin, end, instant, open, payload

__all__ = ["Jobs", "Place", "begin", "end", "instant", "jobs", "open", "payload"]
