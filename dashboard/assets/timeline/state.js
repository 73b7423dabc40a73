// The view as the fields of an address, and back. Pure functions; what cannot be read is left out.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const FIELDS = [
        "rows",
        "block",
        "ranks",
        "from",
        "to",
        "row_from",
        "row_to",
        "zero",
        "span",
        "area",
        "measure",
        "find",
        "least_ns",
        "most_ns",
    ];
    const FORMS = {
        rows: /^(blocks|sms|warps)$/,
        block: /^r\d{1,9}b\d{1,9}$/,
        ranks: /^(all|\d{1,9}(,\d{1,9})*)$/,
        from: /^-?\d{1,15}(\.\d{1,2})?$/,
        to: /^-?\d{1,15}(\.\d{1,2})?$/,
        row_from: /^\d{1,9}(\.\d{1,6})?$/,
        row_to: /^\d{1,9}(\.\d{1,6})?$/,
        zero: /^(auto|run|step|launch)$/,
        span: /^\d{1,9}\.\d{1,10}\.\d{1,10}$/,
        area: /^-?\d{1,15}_-?\d{1,15}_\d{1,9}_\d{1,9}$/,
        measure: /^-?\d{1,15}_-?\d{1,15}$/,
        least_ns: /^\d{1,15}$/,
        most_ns: /^\d{1,15}$/,
    };
    const LONGEST_FIND = 200;

    /** The fields that can be read, as texts. */
    function read(query) {
        const found = {};
        for (const name of FIELDS) {
            const value = query && query[name] !== undefined && query[name] !== null ? String(query[name]) : "";
            if (name === "find" ? value && value.length <= LONGEST_FIND : FORMS[name].test(value)) {
                found[name] = value;
            }
        }
        return found;
    }

    /** The fields of what is shown; what a link without them would show anyway is left out. */
    function write(app) {
        const { view, run, choice } = app;
        const { from, to } = view;
        const isOpening = from === run.opening.from && to === run.opening.to;
        const rowsFit = app.rowsFit();
        const state = {
            rows: choice.rows === "blocks" ? "" : choice.rows,
            block: choice.rows === "warps" ? choice.block : "",
            ranks: choice.ranks === "all" ? "" : choice.ranks,
            from: isOpening ? "" : from,
            to: isOpening ? "" : to,
            row_from: rowsFit ? "" : +view.top.toFixed(3),
            row_to: rowsFit ? "" : +(view.top + app.geometry.plot.height / view.rowPx).toFixed(3),
            zero: app.zeroWanted === "auto" ? "" : app.zeroWanted,
            span: app.details ? idOf(app.details.span) : "",
            area: app.area ? [app.area.from, app.area.to, app.area.rowFrom, app.area.rowTo].join("_") : "",
            measure: app.measure && app.measure.edges.length === 2 ? measured(app.measure) : "",
            find: app.found ? app.found.op : "",
            least_ns: app.found ? app.found.leastNs : "",
            most_ns: app.found ? app.found.mostNs : "",
        };
        return Object.fromEntries(
            Object.entries(state)
                .filter(([, value]) => value !== "")
                .map(([name, value]) => [name, String(value)])
        );
    }

    function idOf(span) {
        return [span.rank, span.step, span.id].join(".");
    }

    function measured(measure) {
        return measure.edges.map((edge) => Math.round(edge.time)).join("_");
    }

    timeline.state = { FIELDS: FIELDS, read: read, write: write, idOf: idOf };
})();
