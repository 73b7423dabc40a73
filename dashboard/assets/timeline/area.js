// The chosen area: counts and times of the spans in it, by op and kind, and a histogram of one of the rows.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const COLUMNS = [
        ["n", "n"],
        ["total_ns", "total"],
        ["min_ns", "min"],
        ["p10_ns", "p10"],
        ["p50_ns", "p50"],
        ["p90_ns", "p90"],
        ["max_ns", "max"],
    ];
    const IN_TABLE = ["n", "total_ns", "p50_ns"];
    const MOST_LINES = 100;
    const make = (...all) => timeline.elements.make(...all);

    class Area {
        constructor(app, panel) {
            this.app = app;
            this.panel = panel;
            this.asking = new timeline.fetching.Single();
            this.found = null;
            this.chosen = 0;
        }

        /** Choose an area {from, to, rowFrom, rowTo}: ns from the origin, and rows (the last is outside). */
        async choose(area) {
            const { app } = this;
            app.area = area;
            app.redrawOverlay();
            app.changed();
            try {
                const found = await this.asking.json("area", {
                    ...app.place(),
                    from: area.from,
                    to: area.to,
                    row_from: area.rowFrom,
                    row_to: area.rowTo,
                });
                if (found) {
                    this.found = found;
                    this.chosen = 0;
                    this.fill();
                }
            } catch (error) {
                app.say(error.message);
            }
        }

        clear() {
            this.asking.cancel();
            this.app.area = this.found = null;
            this.fill();
            this.app.redrawOverlay();
            this.app.changed();
        }

        fill() {
            const { app, found, panel } = this;
            panel.replaceChildren();
            panel.hidden = !found || !app.area;
            if (panel.hidden) {
                return;
            }
            const close = timeline.elements.button("\u00d7", "close (Esc)", () => this.clear());
            close.classList.add("tl-close");
            const csv = timeline.elements.button("CSV", "save these numbers", () => this._save());
            csv.classList.add("tl-small");
            panel.append(make("header", {}, make("b", {}, this._title()), csv, close));
            if (found.note) {
                panel.append(make("p", { class: "tl-soft" }, found.note));
            }
            if (!found.rows.length) {
                panel.append(make("p", { class: "tl-soft" }, "No span lies in this area."));
                return;
            }
            this.canvas = make("canvas", { class: "tl-histogram" });
            this.facts = make("dl", { class: "tl-facts tl-numbers" });
            panel.append(make("div", { class: "tl-table" }, this._table()), this.facts, this.canvas);
            this._histogram();
        }

        _title() {
            const { area, rows } = this.app;
            const { exact } = timeline.axis;
            const number = area.rowTo - area.rowFrom;
            const place = number === 1 ? rows[area.rowFrom].full : exact(number) + " rows";
            const spans = this.found.spans;
            return `${exact(spans)} ${spans === 1 ? "span" : "spans"}, ${exact(area.to - area.from)} ns, ${place}`;
        }

        _table() {
            const head = make("tr", {}, make("th", {}, "op, kind (ns)"));
            for (const [name, words] of COLUMNS) {
                if (IN_TABLE.includes(name)) {
                    head.append(make("th", {}, words));
                }
            }
            const body = make("tbody", {});
            this.found.rows.slice(0, MOST_LINES).forEach((row, index) => body.append(this._line(row, index)));
            return make("table", {}, make("thead", {}, head), body);
        }

        /** All columns of all rows, as a file. */
        _save() {
            const { ops } = this.app.run;
            const rows = this.found.rows.map((row) => [
                (ops[row.op] || { name: "?" }).name,
                row.kind,
                ...COLUMNS.map(([name]) => row[name]),
            ]);
            timeline.exporting.saveCsv(["op", "kind", ...COLUMNS.map(([name]) => name)], rows);
        }

        _line(row, index) {
            const { app } = this;
            const op = app.run.ops[row.op] || { name: "?" };
            const swatch = timeline.pointing.swatch(app, row.op, timeline.palette.stripOf(row.kind));
            const words = timeline.fittingText.shown(op.name) + " " + timeline.fittingText.shown(row.kind);
            const choose = make("button", { type: "button", class: "tl-link" }, swatch, words);
            choose.addEventListener("click", () => {
                this.chosen = index;
                this._histogram();
            });
            const cells = IN_TABLE.map((name) => make("td", {}, timeline.axis.exact(row[name])));
            return make("tr", {}, make("td", {}, choose), ...cells);
        }

        _histogram() {
            const { app, found } = this;
            const row = found.rows[this.chosen];
            const style = app.palette.ops[row.op] || app.palette.unknown;
            this.facts.replaceChildren();
            for (const [name, words] of COLUMNS) {
                const value = make("data", { value: row[name] }, timeline.axis.exact(row[name]));
                this.facts.append(make("dt", {}, words), make("dd", {}, value, name === "n" ? "" : " ns"));
            }
            const marks = [row.p10_ns, row.p50_ns, row.p90_ns];
            timeline.histogram.draw(this.canvas, app.palette, found.edges_ns, row.counts, marks, style.fill);
            [...this.panel.querySelectorAll("tbody tr")].forEach((line, index) => {
                line.classList.toggle("tl-chosen", index === this.chosen);
            });
        }
    }

    timeline.Area = Area;
})();
