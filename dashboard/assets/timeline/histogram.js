// A histogram of durations with bins of one width on a logarithmic scale.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const AXIS_PX = 16;
    const LEAST_BINS = 12;

    /** The bins from the first to the last that has anything, at least 12: {first, last} with last behind it. */
    function filled(counts) {
        let first = counts.findIndex((count) => count > 0);
        if (first < 0) {
            return { first: 0, last: 0 };
        }
        let last = counts.length;
        while (counts[last - 1] === 0) {
            last -= 1;
        }
        const missing = Math.max(LEAST_BINS - (last - first), 0);
        first = Math.max(0, first - Math.floor(missing / 2));
        last = Math.min(counts.length, last + Math.ceil(missing / 2));
        return { first: first, last: last };
    }

    /** Draw counts over their edges; the marks are {p10, p50, p90} in ns. */
    function draw(canvas, palette, edges, counts, marks, colour) {
        const scale = window.devicePixelRatio || 1;
        const [width, height] = [canvas.clientWidth, canvas.clientHeight];
        [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
        const context = canvas.getContext("2d");
        context.setTransform(scale, 0, 0, scale, 0, 0);
        const surface = new timeline.surface.CanvasSurface(context, palette);
        const { first, last } = filled(counts);
        const room = height - AXIS_PX;
        const most = Math.max(1, ...counts);
        const bar = width / Math.max(last - first, 1);
        for (let bin = first; bin < last; bin += 1) {
            const tall = counts[bin] ? Math.max((counts[bin] / most) * (room - 4), 1) : 0;
            surface.fill((bin - first) * bar, room - tall, Math.max(bar - 1, 1), tall, colour);
        }
        surface.line(0, room + 0.5, width, room + 0.5, palette.rule);
        if (last === first) {
            return;
        }
        for (const mark of marks) {
            const x = placeOf(edges, mark, first, last) * width;
            surface.line(x, 0, x, room, palette.ink, 1, [3, 2]);
        }
        const y = height - AXIS_PX / 2 + 1;
        surface.text(timeline.axis.readable(edges[first]), 0, y, palette.softInk, { size: 10 });
        surface.text(timeline.axis.readable(edges[last]), width, y, palette.softInk, { size: 10, align: "right" });
    }

    /** Where a value stands between the first and the last edge, 0 to 1: even within its bin. */
    function placeOf(edges, value, first, last) {
        for (let bin = first; bin < last; bin += 1) {
            if (value < edges[bin + 1] || bin === last - 1) {
                const within = (value - edges[bin]) / Math.max(edges[bin + 1] - edges[bin], 1e-9);
                return (bin - first + Math.min(Math.max(within, 0), 1)) / (last - first);
            }
        }
        return 0;
    }

    timeline.histogram = { draw: draw, filled: filled, placeOf: placeOf };
})();
