"""What the jobs of a run move, as far as anybody knows."""

from __future__ import annotations

from musetrace.analysis.spans.run_like import RunLike
from musetrace.job_bytes import RunBytes


def known_bytes(run: RunLike) -> RunBytes:
    """What the run says of its jobs' bytes; of older runs of the built-in model what it describes."""
    declared = RunBytes.of_manifest(run.manifest)
    if declared.launches:
        return declared
    # Few runs need the model.
    from musetrace.muse.job_bytes import bytes_of_older_run

    older = bytes_of_older_run(run.manifest)
    return older if older.launches else declared
