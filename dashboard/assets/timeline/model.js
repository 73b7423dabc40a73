// The run's document and its rows, as the view uses them. Pure functions.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const LEAST_COVERED = 0.5; // of a run by its steps, to be shown as a whole at first
    const OWNED_BY_BLOCK = 255; // the warp of jobs that the whole block owns
    const UNKNOWN = { id: -1, name: "unknown job", op: "unknown", kind: "compute", awaits: null, stop: null };

    function jobOf(job) {
        return { ...job, strip: timeline.palette.stripOf(job.kind), shown: timeline.fittingText.shown(job.name) };
    }

    /** The run's document with its jobs by number. A run of no length becomes one ns long. */
    function prepareRun(found) {
        const run = { ...found, to: Math.max(found.to, found.from + 1) };
        run.jobById = new Map(run.jobs.map((job) => [job.id, jobOf(job)]));
        run.unknownJob = jobOf({ ...UNKNOWN, op_index: run.ops.length - 1 });
        // Kernels of other people have launches, and no layers of a model.
        run.hasLayers = !run.has_kernels && run.launches.some((launch) => launch.layer >= 0);
        run.launches.sort((one, other) => one.from - other.from);
        run.opening = openingOf(run);
        return run;
    }

    /** The rows of /api/rows with short labels; `groupStart` is the first row of the rank. */
    function prepareRows(found, run, mode) {
        const roles = new Map((run.warps || []).map((warp) => [warp.warp, warp.role]));
        const isOneRank = new Set(found.map((row) => row[0])).size <= 1;
        let groupStart = 0;
        return found.map(([rank, block, warp, sm, label], index) => {
            if (index > 0 && found[index - 1][0] !== rank) {
                groupStart = index;
            }
            const full = timeline.fittingText.shown(label || "row " + index);
            const row = { rank: rank, block: block, warp: warp, sm: sm, full: full, groupStart: groupStart };
            row.label = labelOf(row, mode, isOneRank, roles);
            return row;
        });
    }

    function labelOf(row, mode, isOneRank, roles) {
        if (mode === "warps") {
            const role = roles.get(row.warp);
            if (row.warp === OWNED_BY_BLOCK) {
                return "block";
            }
            return "w" + row.warp + (role ? " " + timeline.fittingText.shown(role) : "");
        }
        const place = mode === "sms" ? "SM " + row.sm : (isOneRank ? "block " : "b") + row.block;
        return isOneRank ? place : "r" + row.rank + " " + place;
    }

    /** What names the row of a span, or a row itself. */
    function rowKey(mode, one) {
        return { blocks: [one.rank, one.block], sms: [one.rank, one.sm], warps: [one.rank, one.block, one.warp] }[
            mode
        ].join(".");
    }

    /** The ranks that `all`, `0` or `0,3` chooses. */
    function ranksOf(run, chosen) {
        if (chosen === "all") {
            return run.ranks;
        }
        const wanted = chosen.split(",").map(Number);
        return run.ranks.filter((rank) => wanted.includes(rank));
    }

    /**
     * The window of a step (null: every step) and of the layers `12` or `3-7` ("": all of them) over some ranks.
     * Returns {from, to}, or null when there is no such launch.
     */
    function windowOf(run, ranks, step, layers) {
        const range = /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(layers);
        if (layers.trim() && !range) {
            return null;
        }
        const first = range ? Number(range[1]) : -Infinity;
        const last = range ? Number(range[2] === undefined ? range[1] : range[2]) : Infinity;
        const number = (launch) => (run.hasLayers ? launch.layer : launch.launch);
        const found = run.launches.filter(
            (one) =>
                ranks.includes(one.rank) &&
                (step === null || one.step === step) &&
                number(one) >= first &&
                number(one) <= last
        );
        if (!found.length) {
            const whole = !range && run.steps.find((one) => one.step === step);
            return whole ? { from: whole.from, to: whole.to } : null;
        }
        return {
            from: found.reduce((least, one) => Math.min(least, one.from), Infinity),
            to: found.reduce((most, one) => Math.max(most, one.to), -Infinity),
        };
    }

    /**
     * What a link without a window shows: the whole run, or its first whole step where most of the run is the
     * host's time between steps. Whole is a step of as many launches as the median step; of two, as the larger one.
     */
    function openingOf(run) {
        const steps = [...run.steps].sort((one, other) => one.from - other.from);
        let covered = 0;
        let reached = run.from;
        for (const { from, to } of steps) {
            covered += Math.max(to - Math.max(from, reached), 0);
            reached = Math.max(reached, to);
        }
        if (steps.length < 2 || covered >= LEAST_COVERED * (run.to - run.from)) {
            return { from: run.from, to: run.to };
        }
        const launches = new Map(steps.map(({ step }) => [step, 0]));
        for (const { step } of run.launches) {
            launches.set(step, (launches.get(step) || 0) + 1);
        }
        const counts = [...launches.values()].sort((one, other) => one - other);
        const usual = counts[Math.floor(counts.length / 2)];
        const { from, to } = steps.find(({ step }) => launches.get(step) >= usual);
        return { from: from, to: Math.max(to, from + 1) };
    }

    timeline.model = {
        openingOf: openingOf,
        prepareRun: prepareRun,
        prepareRows: prepareRows,
        rowKey: rowKey,
        ranksOf: ranksOf,
        windowOf: windowOf,
    };
})();
