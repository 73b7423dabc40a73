// What is under the pointer, and how the readout says it.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const SLACK_PX = 2;
    const make = (...all) => timeline.elements.make(...all);

    /** The strip of a row that an y within the plot is in. */
    function stripAt(app, y) {
        const strips = app.strips();
        const within = (timeline.transform.rowAt(app.view, y) % 1) * app.view.rowPx;
        for (let strip = 0; strip < strips - 1; strip += 1) {
            const [top, height] = timeline.drawData.stripBand(strip, strips, app.view.rowPx);
            if (within < top + height) {
                return strip;
            }
        }
        return strips - 1;
    }

    /** A span of an answer as a short span. */
    function shortSpan(app, answer, index) {
        const { row, rank, step, id, job, warp, begin, dur } = answer.data;
        const place = app.rows[row[index]];
        return {
            rank: rank ? rank[index] : place.rank,
            step: step[index],
            id: id[index],
            block: place.block,
            warp: warp[index],
            sm: place.sm,
            job: job[index],
            begin: begin[index],
            end: begin[index] + dur[index],
        };
    }

    /**
     * What is at (x, y) within the plot: {row, time, strip, span, cell}. `span` is exact and only known where
     * spans are drawn, `cell` only where the raster is; both null for nothing.
     */
    function at(app, x, y) {
        const { view, answer, geometry, rows } = app;
        const row = Math.floor(timeline.transform.rowAt(view, y));
        const time = timeline.transform.timeAt(view, geometry.plot.width, x);
        const found = { row: row, time: time, strip: stripAt(app, y), span: null, cell: null };
        if (row < 0 || row >= rows.length || !answer) {
            return found;
        }
        if (answer.mode === "spans") {
            const slack = (SLACK_PX * (view.to - view.from)) / geometry.plot.width;
            const within = (timeline.transform.rowAt(view, y) - row) * view.rowPx;
            const isUnder = (span) => {
                const about = app.run.jobById.get(answer.data.job[span]) || app.run.unknownJob;
                const [top, height] = timeline.lanes.bandOf(answer, span, about.strip, view.rowPx);
                return answer.strips === 1 || (within >= top - 0.5 && within < top + height + 0.5);
            };
            const index = timeline.answer.spanAt(answer, row, time, slack, isUnder);
            found.span = index < 0 ? null : shortSpan(app, answer, index);
        } else {
            found.cell = timeline.answer.cellAt(answer, row, time, found.strip);
        }
        return found;
    }

    function datum(value) {
        return make("data", { value: value }, timeline.axis.exact(value));
    }

    /** The readout's content for what is under the pointer. */
    function readout(app, found) {
        if (!found || found.row < 0 || found.row >= app.rows.length) {
            return [make("span", {}, "Point at a span to read it to the nanosecond; ? lists the keys.")];
        }
        const zero = app.zero;
        const place = make("span", {}, app.rows[found.row].full);
        if (found.span) {
            const { span } = found;
            const about = app.run.jobById.get(span.job) || app.run.unknownJob;
            return [
                swatch(app, about.op_index, about.strip),
                make("b", {}, about.shown),
                place,
                make("span", {}, "begin ", datum(span.begin - zero.time), " ns"),
                make("span", {}, "end ", datum(span.end - zero.time), " ns"),
                make("span", {}, datum(span.end - span.begin), " ns long"),
            ];
        }
        const time = make("span", {}, "at ", datum(Math.round(found.time - zero.time)), " ns");
        if (found.cell) {
            const op = app.run.ops[found.cell.op] || { name: "?" };
            const share = Math.round(100 * found.cell.share);
            return [
                swatch(app, found.cell.op, found.cell.strip),
                make("b", {}, timeline.fittingText.shown(op.name)),
                place,
                make("span", {}, `${timeline.palette.STRIPS[found.cell.strip]}, ${share} % of this pixel's time`),
                time,
            ];
        }
        return [place, time];
    }

    function swatch(app, op, strip) {
        const style = app.palette.ops[op] || app.palette.unknown;
        const element = make("i", { class: "tl-swatch tl-form-" + strip });
        element.style.setProperty("--op", style.fill);
        return element;
    }

    timeline.pointing = { at: at, readout: readout, swatch: swatch };
})();
