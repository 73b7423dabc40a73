// Spans of a row's strip that overlap (of several warps) go into lanes of their own where these can be seen.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const LEAST_LANE_PX = 3;

    /**
     * Deals an answer's spans into lanes: each into the first that is free. Sets `lane`, of each span, and
     * `laneCount`, of each row and strip ([row][strip]). `stripOf(job)` is the strip of a job.
     */
    function deal(answer, stripOf) {
        const { begin, dur, job } = answer.data;
        const rows = answer.rowStart.length - 1;
        answer.lane = new Uint16Array(begin.length);
        answer.laneCount = new Uint16Array(rows * 4);
        for (let row = 0; row < rows; row += 1) {
            const free = [[], [], [], []];
            for (let place = answer.rowStart[row]; place < answer.rowStart[row + 1]; place += 1) {
                const span = answer.order[place];
                const ends = free[stripOf(job[span])];
                let lane = ends.findIndex((end) => end <= begin[span]);
                lane = lane < 0 ? ends.length : lane;
                ends[lane] = begin[span] + dur[span];
                answer.lane[span] = lane;
            }
            free.forEach((ends, strip) => {
                answer.laneCount[row * 4 + strip] = ends.length;
            });
        }
    }

    /** Where a span stands within its row: its top and height in px. Lanes too thin to see lie on one another. */
    function bandOf(answer, span, strip, rowPx) {
        const band = timeline.drawData.stripBand(strip, answer.strips, rowPx);
        if (answer.strips === 1) {
            return band;
        }
        const lanes = lanesOf(answer, span, strip);
        if (lanes < 2 || band[1] / lanes < LEAST_LANE_PX) {
            return band;
        }
        return [band[0] + (answer.lane[span] * band[1]) / lanes, band[1] / lanes];
    }

    function lanesOf(answer, span, strip) {
        return answer.laneCount[(answer.data.row[span] - answer.rows[0]) * 4 + strip];
    }

    /** Whether other spans may lie on a span, so that a name on it could be taken for theirs. */
    function isShared(answer, span, strip, rowPx) {
        if (answer.strips === 1) {
            return true;
        }
        const lanes = lanesOf(answer, span, strip);
        const height = timeline.drawData.stripBand(strip, answer.strips, rowPx)[1];
        return lanes > 1 && height / lanes < LEAST_LANE_PX;
    }

    timeline.lanes = { deal: deal, bandOf: bandOf, isShared: isShared };
})();
