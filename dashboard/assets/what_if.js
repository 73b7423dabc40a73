// The levers of the what-if: the list of changes that they mean, asked for one at a time while one is dragged.
(function () {
    "use strict";

    const LIVE = "what-live";
    const FIELD = { type: "field", name: "what" };
    const WHOLE = 100;
    const REST_MS = 400; // so long after the last move the address says it, once
    const GIVE_UP_MS = 4000; // an answer that takes longer is waited for no more

    let asked = null;
    let askedAt = 0;
    let waiting = null;
    let rest = 0;

    window.musetrace.keys("#what-levers", [
        ["\u2190 \u2192", "move a lever by 1 % of the op's time"],
        ["Home, End", "no time, twice its time"],
    ]);

    function ask(text) {
        asked = text;
        askedAt = performance.now();
        waiting = null;
        window.dash_clientside.set_props(LIVE, { data: text });
    }

    function askNext(text) {
        if (askedAt && performance.now() - askedAt < GIVE_UP_MS) {
            waiting = text;
        } else {
            ask(text);
        }
        clearTimeout(rest);
        rest = setTimeout(function () {
            if (document.getElementById("what-levers")) {
                window.dash_clientside.set_props(FIELD, { value: text });
            }
        }, REST_MS);
    }

    // Whoever goes back means what was there, not what was about to be written.
    window.addEventListener("popstate", () => clearTimeout(rest));

    function percentOf(value) {
        const number = Number(value);
        return Number.isFinite(number) ? Math.round(number * 1000) / 1000 : WHOLE;
    }

    function change(name, percent) {
        const off = Math.round((percent - WHOLE) * 1000) / 1000;
        return name + "=" + (percent === 0 ? "0" : (off > 0 ? "+" : "") + off + "%");
    }

    function listOf(values, gone, names) {
        const changes = [];
        values.forEach(function (value, at) {
            const percent = percentOf(value);
            if (percent !== WHOLE && names.ops[at] !== undefined) {
                changes.push(change(names.ops[at], percent));
            }
        });
        gone.flat().forEach((name) => changes.push(name + "=gone"));
        return changes.concat(names.others);
    }

    function same(changes, text) {
        const other = text ? text.split(",") : [];
        return changes.slice().sort().join() === other.sort().join();
    }

    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.what_if = {
        changed: function (values, gone, names, live) {
            const changes = listOf(values, gone, names);
            // The levers of an address as it was written ask for nothing new.
            if (!same(changes, waiting === null ? live || "" : waiting)) {
                askNext(changes.join());
            }
            return values.map((value) => percentOf(value) + " %");
        },

        // A row of the table sets its lever; the button sets all back.
        set: function (rows, clicks, values, gone, options, names) {
            const keep = window.dash_clientside.no_update;
            if (window.dash_clientside.callback_context.triggered_id === "what-reset") {
                return [values.map(() => WHOLE), gone.map(() => []), { ...names, others: [] }];
            }
            const row = rows && rows[0];
            if (!row) {
                return [values.map(() => keep), gone.map(() => keep), keep];
            }
            if (row.to === "gone") {
                const with_it = gone.map(function (list, at) {
                    const has = options[at].some((option) => option.value === row.lever);
                    return has && !list.includes(row.lever) ? list.concat(row.lever) : list;
                });
                return [values.map(() => keep), with_it, keep];
            }
            const at = names.ops.indexOf(row.lever);
            return [values.map((value, place) => (place === at ? Number(row.to) : value)), gone.map(() => keep), keep];
        },

        done: function (answered) {
            askedAt = 0;
            if (answered !== asked) {
                waiting = null; // it was asked on a page that is gone
            } else if (waiting !== null) {
                ask(waiting);
            }
        },
    };
})();
