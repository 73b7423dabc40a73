// What lies over the rows: the span that is chosen and its flows, hits, the measured distance, the chosen area.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const MOST_FLOWS = 64;
    const FEW_FLOWS = 8;

    /** The box of a short span on the canvas, null where it has no row. */
    function boxOfSpan(app, span) {
        const row = app.rowOf(span);
        if (row === null) {
            return null;
        }
        const { view, geometry: place } = app;
        const plot = place.plot;
        const about = app.run.jobById.get(span.job) || app.run.unknownJob;
        const band = bandOfSpan(app, row, span, about.strip);
        const x0 = timeline.transform.xOf(view, plot.width, span.begin);
        const x1 = timeline.transform.xOf(view, plot.width, span.end);
        return {
            x0: plot.left + Math.max(-1e5, Math.min(x0, 1e5)),
            x1: plot.left + Math.max(-1e5, Math.min(x1, 1e5)),
            y: plot.top + timeline.transform.yOf(view, row) + band[0],
            height: Math.max(band[1], 1),
        };
    }

    /** Where a span stands in its row; it may not be among those that are drawn. */
    function bandOfSpan(app, row, span, strip) {
        const { answer, view } = app;
        if (answer && answer.mode === "spans") {
            const { id, step } = answer.data;
            for (const one of timeline.answer.spansOfRow(answer, row)) {
                if (id[one] === span.id && step[one] === span.step) {
                    return timeline.lanes.bandOf(answer, one, strip, view.rowPx);
                }
            }
        }
        return timeline.drawData.stripBand(strip, app.strips(), view.rowPx);
    }

    function outline(surface, box, colour, thick) {
        const width = Math.max(box.x1 - box.x0, 1);
        surface.stroke(box.x0 - thick, box.y - thick, width + 2 * thick, box.height + 2 * thick, colour, thick);
    }

    function drawChosen(surface, app) {
        const { palette, details } = app;
        if (!details) {
            return;
        }
        const box = boxOfSpan(app, details.span);
        if (!box) {
            return;
        }
        const middle = (one) => one.y + one.height / 2;
        // Many flows are faint, or they would hide what they lead to.
        const ink = palette.softInk + (details.consumers.length > FEW_FLOWS ? "60" : "");
        for (const consumer of details.consumers.slice(0, MOST_FLOWS)) {
            const to = boxOfSpan(app, consumer);
            if (to) {
                surface.flow(box.x1, middle(box), to.x1, middle(to), ink, 1);
            }
        }
        const from = details.producer && boxOfSpan(app, details.producer);
        if (from) {
            surface.flow(from.x1, middle(from), box.x1, middle(box), palette.accent, 2);
            outline(surface, from, palette.accent, 1);
        }
        outline(surface, box, palette.ink, 2);
    }

    function drawHits(surface, app) {
        for (const hit of app.hits || []) {
            const box = boxOfSpan(app, hit);
            if (box && box.x1 >= 0 && box.x0 <= app.geometry.width) {
                outline(surface, box, app.palette.accent, 1);
            }
        }
    }

    function drawArea(surface, app) {
        const area = app.area;
        if (!area) {
            return;
        }
        const { view, palette, geometry: place } = app;
        const plot = place.plot;
        const x0 = plot.left + timeline.transform.xOf(view, plot.width, area.from);
        const x1 = plot.left + timeline.transform.xOf(view, plot.width, area.to);
        const y0 = plot.top + timeline.transform.yOf(view, area.rowFrom);
        const y1 = plot.top + timeline.transform.yOf(view, area.rowTo);
        const left = Math.max(x0, plot.left - 4);
        const right = Math.min(x1, plot.left + plot.width + 4);
        surface.fill(left, y0, right - left, y1 - y0, palette.accent + "22");
        surface.stroke(left, y0, right - left, y1 - y0, palette.accent, 1);
    }

    function drawMeasure(surface, app) {
        const { view, palette, measure, geometry: place } = app;
        const plot = place.plot;
        if (!measure) {
            return;
        }
        const xs = measure.edges.map((edge) => plot.left + timeline.transform.xOf(view, plot.width, edge.time));
        for (const x of xs) {
            surface.line(x, plot.top, x, plot.top + plot.height, palette.ink, 1, [4, 3]);
        }
        const isInSight = Math.max(...xs) > plot.left && Math.min(...xs) < plot.left + plot.width;
        if (xs.length === 2 && isInSight) {
            const y = plot.top + 14;
            surface.line(xs[0], y, xs[1], y, palette.ink, 1);
            const words = timeline.axis.exact(Math.abs(measure.edges[1].time - measure.edges[0].time)) + " ns";
            const font = "600 12px " + palette.font;
            const half = timeline.fittingText.widthOf(words, font) / 2 + 6;
            const middle = Math.min(
                Math.max((xs[0] + xs[1]) / 2, plot.left + half),
                plot.left + plot.width - half
            );
            surface.fill(middle - half, y - 9, 2 * half, 18, palette.ink);
            surface.text(words, middle, y + 0.5, palette.paper, { align: "center", size: 12, weight: 600 });
        }
    }

    function drawPointer(surface, app) {
        const { palette, hover, geometry: place } = app;
        if (!hover) {
            return;
        }
        const plot = place.plot;
        const x = hover.edge
            ? plot.left + timeline.transform.xOf(app.view, plot.width, hover.edge.time)
            : hover.x;
        surface.line(x + 0.5, plot.top, x + 0.5, plot.top + plot.height, palette.faintInk, 1);
        if (hover.span) {
            const box = boxOfSpan(app, hover.span);
            if (box) {
                outline(surface, box, palette.ink, 1);
            }
        }
    }

    function drawOverlay(surface, app, withPointer) {
        const plot = app.geometry.plot;
        surface.clip(plot.left, plot.top, plot.width, plot.height);
        drawArea(surface, app);
        drawHits(surface, app);
        drawChosen(surface, app);
        drawMeasure(surface, app);
        if (withPointer) {
            drawPointer(surface, app);
        }
        surface.unclip();
    }

    timeline.drawOverlay = { drawOverlay: drawOverlay, boxOfSpan: boxOfSpan };
})();
