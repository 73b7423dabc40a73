"""The article's run at full width on the GPUs of a host, in one call, with all its figures in a folder.

``python -m tests.bench.whole_model --processes N --out FOLDER [--layers L] [--guesses none] [--only NAMES]``.
On eight GPUs each process is one rank and all 62 layers run; on two or four a process holds several ranks
(``--layers 30`` fits two). Every stage is a command with its own time; one that fails does not keep the
others from running, and ``outcomes.md`` says what became of each. Recordings are made in a temporary folder;
what ``--out`` keeps of them is a small one, packed. ``article.md`` is the article's table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.bench.stages import Stage, Stages

MODEL, TP, ALL_LAYERS = "muse-spark-open", 8, 62
# Layers 0 to 2: bf16 experts, and NVFP4 ones behind global and sliding attention.
SMALL_LAYERS, SMALL_STEPS = 3, 1
# A compared op needs six steps in both runs.
STEPS = 8
MINUTES = 9.5
# Exit codes of verbs that tell what they can of a run.
READABLE = (0, 3)


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    processes: int
    layers: int
    guesses: str
    steps: int
    rounds: int
    out: Path
    work: Path

    @property
    def model_options(self) -> list[str]:
        """Of ``record``, for the model that all stages run."""
        cut = [] if self.layers == ALL_LAYERS else ["--layers", str(self.layers)]
        return [*cut, "--guesses", self.guesses]


def stages_of(wanted: Wanted) -> list[Stage]:
    """All stages, those that tell most first. Runs are named without the folder that they are made in."""
    out, work = wanted.out, wanted.work
    timing, chain = str(out / "timing.json"), str(out / "chain.json")
    settings = ["--layers", str(wanted.layers), "--rounds", str(wanted.rounds)]
    recorded = ["--steps", str(wanted.steps), *wanted.model_options]
    bench = ["tests.bench.whole_steps_bench", *settings, "--guesses", wanted.guesses, "--json", timing]
    table = ["sumsq", "--timing", timing, "--chain", chain, "--json", str(out / "article.json")]

    def of_gpus(name: str, command: list[str], limit_s: float) -> Stage:
        return Stage(name, command, limit_s, ("gpus",), folder=work)

    # A recording that ran out of time is one as far as it goes.
    def page(name: str, command: list[str], limit_s: float, to: str) -> Stage:
        return Stage(name, command, limit_s, ("gpus",), to, READABLE, work)

    return [
        Stage("gpus", module("tests.bench.peer_gpus", "--processes", str(wanted.processes)), 30),
        of_gpus("timing", torchrun(wanted, *bench), 150),
        of_gpus("record sumsq", record(wanted, "sumsq", *recorded), 150),
        of_gpus("record gather", record(wanted, "gather", *recorded, "--stop4", "gather"), 150),
        of_gpus("chain", module("tests.bench.layer_bench", *settings, "--json", chain), 90),
        page("article", module("tests.bench.article_table", *table), 120, "article.md"),
        page("info", musetrace("info", "sumsq"), 30, "info.txt"),
        of_gpus("small", record(wanted, "small", *small_options(wanted)), 90),
        Stage("check", musetrace("check", "small"), 30, ("small",), folder=work),
        Stage("pack", ["tar", "-czf", str(out / "small.tar.gz"), *journals()], 60, ("small",), folder=work),
        page("probe", musetrace("probe", "--device", "cuda", "--only", "peer", "--json"), 60, "peer.json"),
        # Makes the sums that the index keeps, which take longest; compare makes those of the second run.
        page("report", musetrace("report", "sumsq"), 120, "report.txt"),
        page(
            "compare",
            musetrace("compare", "sumsq", "gather", "--md", str(out / "compare.md")),
            200,
            "compare.txt",
        ),
    ]


def small_options(wanted: Wanted) -> list[str]:
    """Of the recording that is kept."""
    layers = min(SMALL_LAYERS, wanted.layers)
    return ["--steps", str(SMALL_STEPS), "--layers", str(layers), "--guesses", "none"]


def module(name: str, *words: str) -> list[str]:
    """A module of this repository, run by this Python."""
    return [sys.executable, "-m", name, *words]


def musetrace(*words: str) -> list[str]:
    """A verb."""
    return module("musetrace", *words)


def torchrun(wanted: Wanted, name: str, *words: str) -> list[str]:
    """A module in so many processes."""
    start = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(wanted.processes)]
    return module("torch.distributed.run", *start, "-m", name, *words)


def record(wanted: Wanted, run: str, *words: str) -> list[str]:
    """Steps of the model as one run of all ranks."""
    model = ["--device", "cuda", "--model", MODEL, "--tp", str(TP), "--graph"]
    return torchrun(wanted, "musetrace", "record", "-o", run, *model, *words)


def journals() -> list[str]:
    """Of the small recording: all that a run needs, the rest is made of them."""
    return [f"small/rank-{rank:04d}.mtj" for rank in range(TP)]


def write_outcomes(stages: Stages, wanted: Wanted) -> None:
    """The table of stages, after each of them: whatever ends this process, what was done is told."""
    (wanted.out / "outcomes.md").write_text(stages.markdown() + "\n", encoding="utf-8")
    (wanted.out / "outcomes.json").write_text(json.dumps(stages.to_json(), indent=1), encoding="utf-8")


def wanted_of(args: argparse.Namespace, work: Path) -> Wanted:
    """The arguments, checked."""
    if TP % args.processes:
        raise SystemExit(f"{TP} ranks cannot be dealt to {args.processes} processes evenly")
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.absolute()
    return Wanted(args.processes, args.layers, args.guesses, args.steps, args.rounds, out, work)


def main() -> int:
    """Run all stages and print the tables. Exit code 0 when every stage did its work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=TP, metavar="N", help="GPUs (default 8)")
    parser.add_argument("--layers", type=int, default=ALL_LAYERS, metavar="L", help="run the first L only")
    parser.add_argument(
        "--guesses", choices=("tree", "none"), default="tree", help="none: verify passes alone"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"recorded in each run (default {STEPS})")
    parser.add_argument("--rounds", type=int, default=10, help="of replays, two each (default 10)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for all (default {MINUTES})")
    parser.add_argument("--only", metavar="NAMES", help="stages, separated by commas")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whole-model-") as folder:
        wanted = wanted_of(args, Path(folder))
        chosen = None if args.only is None else args.only.split(",")
        # Commands run in the temporary folder.
        paths = filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH")))
        own = {"OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(paths)}
        environment = os.environ | own
        stages = Stages(wanted.out, args.minutes * 60, environment)
        for stage in stages_of(wanted):
            if chosen is None or stage.name in chosen:
                stages.run(stage)
                write_outcomes(stages, wanted)
    article = wanted.out / "article.md"
    print(article.read_text(encoding="utf-8") if article.exists() else "", stages.markdown(), sep="\n")
    return int(any(one.state != "ok" for one in stages.outcomes))


if __name__ == "__main__":
    sys.exit(main())
