// The keys of the block view.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const ZOOM = 0.6;
    const PAN = 0.2;
    const ROWS_ZOOM = 1.35;

    const KEYS = [
        ["W S", "zoom in, out at the pointer, else at the middle; so does the wheel"],
        ["A D", "pan left, right; so do the arrows, shift+wheel and dragging"],
        ["up down", "scroll the rows; page up and page down by a page; alt+wheel"],
        ["+ \u2212", "higher, lower rows; = fits all rows"],
        ["F", "fit the chosen span, else everything"],
        ["0", "fit everything"],
        [". ,", "next, previous span of the row"],
        ["/", "search by op or job and by duration"],
        ["n N", "next, previous hit"],
        ["click", "choose a span: exact times, what it waited for, who waited for it"],
        ["shift+drag", "choose an area: counts and percentiles of its spans"],
        ["M", "measure: click two edges; they snap to spans"],
        ["Esc", "end measuring, then clear the area, then the span"],
    ];

    /** What a key does with a view; keys that are not here are the page's. */
    function actions(view) {
        const { app, details, search } = view;
        const length = () => app.view.to - app.view.from;
        const zoom = (factor) =>
            app.setView(timeline.transform.zoomed(app.view, factor, view.pointer.timeAtPointer(), app.limits));
        const pan = (share) => app.setView(timeline.transform.panned(app.view, share * length(), app.limits));
        const scroll = (rows) => app.setView({ ...app.view, top: app.view.top + rows });
        const page = () => (app.geometry.plot.height / app.view.rowPx) * 0.9;
        const heights = (factor) => {
            const height = app.geometry.plot.height;
            const y = view.pointer.at && view.pointer.at.inPlot ? view.pointer.at.plotY : height / 2;
            app.setView(timeline.transform.rowsZoomed(app.view, factor, y, app.rows.length, height));
        };
        const fitAll = () => {
            app.setView({ ...app.view, from: app.run.from, to: app.run.to });
            app.fitRows();
        };
        return {
            w: () => zoom(ZOOM),
            s: () => zoom(1 / ZOOM),
            a: () => pan(-PAN),
            d: () => pan(PAN),
            ArrowLeft: () => pan(-PAN),
            ArrowRight: () => pan(PAN),
            ArrowUp: () => scroll(-Math.max(1, page() / 9)),
            ArrowDown: () => scroll(Math.max(1, page() / 9)),
            PageUp: () => scroll(-page()),
            PageDown: () => scroll(page()),
            "+": () => heights(ROWS_ZOOM),
            "-": () => heights(1 / ROWS_ZOOM),
            "=": () => app.fitRows(),
            f: () => details.fit() || fitAll(),
            0: fitAll,
            ".": () => details.step(1),
            ",": () => details.step(-1),
            n: () => search.go(1),
            N: () => search.go(-1),
            m: () => view.startMeasuring(),
            "/": () => search.fields.op.focus(),
            Escape: () => view.escape(),
        };
    }

    function isTyping(target) {
        return target instanceof Element && target.closest("input, select, textarea, [contenteditable]") !== null;
    }

    class KeyInput {
        constructor(view) {
            this.view = view;
            this.actions = actions(view);
            this.listener = (event) => this._key(event);
            // Before the page's own: Escape first closes its list of keys.
            document.addEventListener("keydown", this.listener, true);
        }

        _key(event) {
            const root = this.view.parts.root;
            if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isTyping(event.target)) {
                return;
            }
            if (!root.isConnected || document.getElementById("help")) {
                return;
            }
            const isLetter = event.key.length === 1 && event.key !== "N";
            const action = this.actions[isLetter ? event.key.toLowerCase() : event.key];
            if (action) {
                event.preventDefault();
                action();
            }
        }

        stop() {
            document.removeEventListener("keydown", this.listener, true);
        }
    }

    timeline.KeyInput = KeyInput;
    window.musetrace.keys("#timeline canvas", KEYS);
})();
