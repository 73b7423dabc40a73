// Puts the view on the page, and shows in it what an address says.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    /** Show the state of an address: fields that are not there are the defaults. */
    async function restore(view, query) {
        const { app } = view;
        const state = timeline.state.read(query);
        app.isRestoring = true;
        const choice = {
            rows: state.rows || "blocks",
            ranks: state.ranks || "all",
            block: state.block || "",
        };
        const isOther = Object.keys(choice).some((name) => choice[name] !== app.choice[name]);
        if (isOther || !app.rows.length) {
            await app.choose(choice);
        }
        app.zeroWanted = state.zero || "auto";
        view.controls.zero.value = app.zeroWanted;
        showWindow(app, state);
        showMeasure(app, state);
        await Promise.all([showSpan(view, state), showArea(view, state), showSearch(view, state)]);
        app.isRestoring = false;
        app.toldState = JSON.stringify(timeline.state.write(app));
    }

    function showWindow(app, state) {
        const hasWindow = state.from !== undefined && state.to !== undefined && +state.from < +state.to;
        const window = hasWindow ? { from: +state.from, to: +state.to } : app.run.opening;
        app.setView({ ...app.view, ...window });
        const rows = +state.row_to - +state.row_from;
        if (rows > 0) {
            app.setView({ ...app.view, rowPx: app.geometry.plot.height / rows, top: +state.row_from });
        } else {
            app.fitRows();
        }
    }

    function showMeasure(app, state) {
        const edges = state.measure ? state.measure.split("_").map((time) => ({ time: +time, words: "", rank: null })) : [];
        app.measure = edges.length ? { edges: edges } : null;
        if (app.measure) {
            app.say(timeline.measure.words(app));
        }
        app.redrawOverlay();
    }

    async function showSpan(view, state) {
        if (!state.span) {
            return view.details.clear();
        }
        const [rank, step, id] = state.span.split(".").map(Number);
        // A link that names a span alone means the place where it is.
        const isShown = state.from === undefined || state.to === undefined;
        await view.details.choose({ rank: rank, step: step, id: id }, isShown);
    }

    async function showArea(view, state) {
        if (!state.area) {
            return view.area.clear();
        }
        const [from, to, rowFrom, rowTo] = state.area.split("_").map(Number);
        if (from < to && rowFrom < rowTo && rowTo <= view.app.rows.length) {
            await view.area.choose({ from: from, to: to, rowFrom: rowFrom, rowTo: rowTo });
        }
    }

    async function showSearch(view, state) {
        const wanted = { op: state.find || "", leastNs: state.least_ns || "", mostNs: state.most_ns || "" };
        await view.search.find(wanted, false);
    }

    let kept = { key: "", found: null };

    /** The run's document; that of the view before when it is of the same version of the same run. */
    async function documentOf(options) {
        const key = options.run + "." + options.version;
        if (kept.key !== key) {
            const found = await timeline.fetching.json("run", { run: options.run });
            kept = { key: found.minimap ? key : "", found: found };
        }
        return kept.found;
    }

    /**
     * Build the view within an empty element and show `query`, an object of the address' fields.
     * `options`: run, its number; version, how often it was opened anew; onState, called with the fields of the state whenever it rests.
     */
    async function mount(root, query, options) {
        const handle = { view: null, isStopped: false };
        root.timeline = handle;
        root.textContent = "Reading the run\u2026";
        try {
            const run = timeline.model.prepareRun(await documentOf(options));
            if (handle.isStopped) {
                return;
            }
            if (!run.spans || !run.ranks.length) {
                root.textContent = "Nothing was stamped in this run, so there is no timeline to draw.";
                return;
            }
            handle.view = new timeline.View(root, run, options);
            await restore(handle.view, query);
        } catch (error) {
            root.textContent = error.message;
        }
    }

    /** The run has grown: show what is new, at the place that is shown. */
    async function follow(handle) {
        const { app } = handle.view;
        try {
            const run = await timeline.fetching.json("run", { run: app.options.run });
            await app.takeRun(timeline.model.prepareRun(run));
        } catch (error) {
            app.say(error.message);
        }
    }

    function stop(handle) {
        handle.isStopped = true;
        if (handle.view) {
            handle.view.stop();
        }
    }

    let current = null;

    // What Dash calls; the order of the fields is that of state.js.
    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.musetrace_timeline = {
        mount: function (ref, ...values) {
            const root = document.getElementById("timeline");
            if (!root || !ref) {
                return window.dash_clientside.no_update;
            }
            if (root.timeline && root.timeline.view) {
                follow(root.timeline);
                return window.dash_clientside.no_update;
            }
            if (current) {
                stop(current);
            }
            const names = timeline.state.FIELDS;
            const query = Object.fromEntries(names.map((name, i) => [name, values[i]]));
            // A view that has gone has no store any more.
            const onState = (state) =>
                root.isConnected && window.dash_clientside.set_props("timeline-state", { data: state });
            mount(root, query, { run: ref.index, version: ref.version, onState: onState });
            current = root.timeline;
            return ref.version;
        },
        fields: function (state) {
            return timeline.state.FIELDS.map((name) => (state && state[name]) || "");
        },
    };

    timeline.mount = mount;
})();
