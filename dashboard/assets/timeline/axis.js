// Times in words and the ticks of the time axis. Pure functions.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const UNITS = [
        { name: "ns", ns: 1 },
        { name: "us", ns: 1e3 },
        { name: "ms", ns: 1e6 },
        { name: "s", ns: 1e9 },
    ];
    const MINUS = "\u2212";

    /** An integer number of ns with its thousands marked. */
    function exact(ns) {
        const digits = String(Math.abs(Math.round(ns))).replace(/\B(?=(\d{3})+$)/g, ",");
        return (ns < 0 && digits !== "0" ? MINUS : "") + digits;
    }

    /** A time in the unit in which it is short to read: `12.3 us`. */
    function readable(ns) {
        const size = Math.abs(ns);
        const unit = size >= 1e9 ? UNITS[3] : size >= 1e6 ? UNITS[2] : size >= 1e3 ? UNITS[1] : UNITS[0];
        const value = ns / unit.ns;
        const digits = unit.ns === 1 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
        return value.toFixed(digits).replace("-", MINUS) + " " + unit.name;
    }

    /** The least of 1, 2, 5, 10, 20, ... that is at least `least`. */
    function niceStep(least) {
        const power = Math.pow(10, Math.floor(Math.log10(Math.max(least, 1))));
        for (const factor of [1, 2, 5, 10]) {
            if (factor * power >= least) {
                return factor * power;
            }
        }
        return 10 * power;
    }

    /** The unit of an axis over so many ns: us between 2 us and 20 ms, which is where one looks most. */
    function unitOf(length) {
        return length > 2e9 ? UNITS[3] : length > 2e7 ? UNITS[2] : length > 2e3 ? UNITS[1] : UNITS[0];
    }

    function grouped(value, decimals) {
        const [whole, fraction] = Math.abs(value).toFixed(decimals).split(".");
        const digits = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (fraction ? "." + fraction : "");
        return (value < 0 && /[1-9]/.test(digits) ? MINUS : "") + digits;
    }

    /**
     * The ticks of a window, at least `apart` px from each other.
     * Returns {unit, step, ticks: [{time, label}]}; labels count from `zero`, times from the run's origin.
     */
    function ticks(from, to, width, zero, apart) {
        const least = ((to - from) * apart) / Math.max(width, 1);
        const step = niceStep(least);
        const unit = unitOf(to - from);
        const decimals = Math.max(0, Math.ceil(Math.log10(unit.ns) - Math.log10(step) - 1e-9));
        const found = [];
        const first = Math.ceil((from - zero) / step);
        const last = Math.floor((to - zero) / step);
        for (let place = first; place <= last; place += 1) {
            const since = place * step;
            found.push({ time: zero + since, label: grouped(since / unit.ns, decimals) });
        }
        return { unit: unit.name, step: step, ticks: found };
    }

    /**
     * What the axis counts from: the launch or the step in which the window lies, else the run's begin.
     * `wanted` is auto, run, step or launch. Returns {time, words}.
     */
    function zeroOf(view, run, wanted, launches) {
        const middle = (view.from + view.to) / 2;
        const length = view.to - view.from;
        const within = (one) => one.from <= middle && middle < one.to;
        if (wanted === "auto" || wanted === "launch") {
            const launch = launches.find(within);
            if (launch && (wanted === "launch" || length <= 1.6 * (launch.to - launch.from))) {
                return { time: launch.from, words: launchWords(run, launch) };
            }
        }
        if (wanted !== "run") {
            const step = run.steps.find(within);
            if (step && (wanted !== "auto" || length <= 1.6 * (step.to - step.from))) {
                return { time: step.from, words: "step " + step.step };
            }
        }
        return { time: run.from, words: "the run" };
    }

    /** What a launch is called: its layer, its kind where it has none, or its number and kernel. */
    function launchWords(run, launch) {
        if (!run.hasLayers) {
            return `launch ${launch.launch} (${launch.kind}) of step ${launch.step}`;
        }
        const name = launch.layer >= 0 ? "layer " + launch.layer : launch.kind;
        return name + " of step " + launch.step;
    }

    timeline.axis = {
        exact: exact,
        readable: readable,
        niceStep: niceStep,
        ticks: ticks,
        zeroOf: zeroOf,
        launchWords: launchWords,
    };
})();
