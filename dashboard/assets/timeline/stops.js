// The stops in a window: where the last of the rows in sight came out of each.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const MOST_STOPS = 200;

    /** The number of the last launch that began by a time, -1 for none; launches by their begin. */
    function launchAt(launches, time) {
        let [low, high] = [0, launches.length];
        while (low < high) {
            const middle = (low + high) >> 1;
            if (launches[middle].from <= time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low - 1;
    }

    /** [{number, time}] by time: for each launch and stop the latest end of a wait at it, among an answer's spans. */
    function passed(answer, run, launches) {
        const { begin, dur, job } = answer.data;
        const last = new Map();
        for (let span = 0; span < job.length; span += 1) {
            const about = run.jobById.get(job[span]);
            if (about && about.stop !== null && about.stop !== undefined) {
                const key = launchAt(launches, begin[span]) + " " + about.stop;
                const found = last.get(key);
                const end = begin[span] + dur[span];
                if (!found || end > found.time) {
                    last.set(key, { number: about.stop, time: end });
                }
            }
        }
        const stops = [...last.values()].sort((one, other) => one.time - other.time);
        return stops.length > MOST_STOPS ? [] : stops;
    }

    timeline.stops = { passed: passed, launchAt: launchAt };
})();
