// Measuring: two places in time, each at the edge of a span where one is near.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const SNAP_PX = 10;

    /**
     * The place that a press at (x, y) means: {time, words}, times whole ns. `x` and `y` are px within the plot.
     * The edge of a span of that row within 10 px is taken, else the time itself.
     */
    function snapped(app, x, y) {
        const { view, answer, geometry } = app;
        const width = geometry.plot.width;
        const time = timeline.transform.timeAt(view, width, x);
        const slack = (SNAP_PX * (view.to - view.from)) / width;
        const row = Math.floor(timeline.transform.rowAt(view, y));
        const edge =
            answer && answer.mode === "spans" ? timeline.answer.edgeAt(answer, row, time, slack) : null;
        if (!edge) {
            return { time: Math.round(time), words: "", rank: null };
        }
        const about = app.run.jobById.get(answer.data.job[edge.span]) || app.run.unknownJob;
        const words = (edge.isBegin ? "begin of " : "end of ") + about.shown;
        return { time: edge.time, words: words, rank: app.rows[row].rank };
    }

    /** Take a place; a third one begins anew. */
    function take(app, edge) {
        const edges = app.measure && app.measure.edges.length === 1 ? app.measure.edges : [];
        app.measure = { edges: [...edges, edge] };
        app.redrawOverlay();
        app.changed();
        return app.measure;
    }

    /** What was measured, in words. */
    function words(app) {
        const edges = app.measure ? app.measure.edges : [];
        const name = (edge) => edge.words || "a time between edges";
        if (edges.length === 0) {
            return "Measure: click the first edge.";
        }
        if (edges.length === 1) {
            return `From ${name(edges[0])}: click the second edge.`;
        }
        const apart = timeline.axis.exact(edges[1].time - edges[0].time);
        return `${apart} ns${leftOpen(app.run, edges)} from ${name(edges[0])} to ${name(edges[1])}`;
    }

    /** What the clock leaves open in the distance, and the alignment of the ranks when it is between two. */
    function leftOpen(run, edges) {
        const ranks = edges.map((edge) => edge.rank);
        if (!run.tick_ns || ranks.includes(null)) {
            return "";
        }
        if (ranks[0] === ranks[1]) {
            return ` \u00b1 ${timeline.axis.exact(run.tick_ns)} ns`;
        }
        if (run.uncertainty_ns === null) {
            return " (of ranks that are not aligned)";
        }
        return ` \u00b1 ${timeline.axis.exact(run.tick_ns + run.uncertainty_ns)} ns`;
    }

    timeline.measure = { snapped: snapped, take: take, words: words };
})();
