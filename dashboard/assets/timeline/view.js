// The block view on the page: its elements, and what connects its parts.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const MOST_STEP_ENTRIES = 200;
    const MOST_LEGEND_ENTRIES = 60;
    const FORMS = [
        [0, "loads"],
        [1, "work"],
        [2, "sends, syncs"],
        [3, "waits"],
    ];
    const HINT = "Click a span for its exact times and what it waited for; shift+drag over an area for its numbers.";
    const make = (...all) => timeline.elements.make(...all);

    class View {
        /** Build the view of a run's document within `root`. `options` as of App. */
        constructor(root, run, options) {
            this.parts = this._build(root, run);
            this.parts.onChoice = (choice) => this._showChoice(choice);
            this.parts.onWindow = (app) => this._showWindow(app);
            this.parts.onPalette = () => this._recolourPanels();
            const app = (this.app = new timeline.App(this.parts, run, options));
            this.details = new timeline.Details(app, this.parts.details);
            this.area = new timeline.Area(app, this.parts.area);
            this.search = new timeline.Search(app, this.parts.search, this.details);
            this.pointer = new timeline.PointerInput(this, this.parts.overlay);
            this.keys = new timeline.KeyInput(this);
            this.asking = new timeline.fetching.Single();
            this._fillBar(run);
            this._observe();
            app.resize();
            this.hover(null);
        }

        _build(root, run) {
            const canvas = (name, words) => make("canvas", { class: name, role: "img", "aria-label": words });
            const input = (type, words, width) =>
                make("input", { type: type, class: "tl-input", placeholder: words, "aria-label": words, size: width });
            const parts = {
                root: root,
                bar: make("div", { class: "tl-bar" }),
                minimap: canvas("tl-minimap", "the whole run with the window in it"),
                base: canvas("tl-base", "rows of spans over time"),
                overlay: make("canvas", { class: "tl-overlay", tabindex: 0, "aria-label": "timeline; ? lists the keys" }),
                readout: make("div", { class: "tl-readout" }),
                window: make("span", { class: "tl-window" }),
                note: make("span", { class: "tl-note", role: "status" }),
                details: make("section", { class: "tl-panel tl-details", hidden: true }),
                area: make("section", { class: "tl-panel tl-area", hidden: true }),
                legend: make("section", { class: "tl-legend", "aria-label": "colours of the ops" }),
                search: {
                    op: input("search", "op or job", 14),
                    least: input("text", "min ns", 6),
                    most: input("text", "max ns", 6),
                    count: make("span", { class: "tl-count", role: "status" }),
                },
            };
            const plot = make("div", { class: "tl-plot" }, parts.base, parts.overlay);
            const status = make("div", { class: "tl-status" }, parts.window, parts.note);
            const main = make("div", { class: "tl-main" }, parts.minimap, parts.readout, plot, status);
            parts.hint = make("p", { class: "tl-hint" }, HINT);
            const side = make("aside", { class: "tl-side" }, parts.hint, parts.details, parts.area, parts.legend);
            root.classList.add("tl");
            root.replaceChildren(parts.bar, make("div", { class: "tl-body" }, main, side));
            return parts;
        }

        _fillBar(run) {
            const { select, labelled, button } = timeline.elements;
            const { bar, search } = this.parts;
            const { app } = this;
            const modes = [["blocks", "blocks"], ...(run.has_sms ? [["sms", "SMs"]] : []), ["warps", "warps of a block"]];
            const ranks = [["all", "all ranks"], ...run.ranks.map((rank) => [String(rank), "rank " + rank])];
            const zeros = [["auto", "nearest"], ["run", "run"], ["step", "step"], ["launch", "launch"]];
            this.controls = {
                rows: select(modes, "blocks", (rows) => app.choose({ rows: rows, block: this._blockNearby() })),
                ranks: select(ranks, "all", (chosen) => app.choose({ ranks: chosen })),
                block: this._blockInput(),
                step: this._stepControl(run),
                layers: this._layersInput(),
                zero: select(zeros, "auto", (zero) => this.countFrom(zero)),
            };
            const { controls } = this;
            this.blockField = labelled("block", controls.block);
            this.ranksField = labelled("ranks", controls.ranks);
            bar.append(
                labelled("rows", controls.rows),
                this.ranksField,
                this.blockField,
                labelled("step", controls.step),
                labelled(run.hasLayers ? "layers" : "launches", controls.layers),
                labelled("count from", controls.zero),
                make(
                    "div",
                    { class: "tl-search", role: "search" },
                    labelled("find", search.op),
                    search.least,
                    search.most,
                    button("\u2039", "previous hit (N)", () => this.search.go(-1)),
                    button("\u203a", "next hit (n)", () => this.search.go(1)),
                    search.count
                ),
                make(
                    "div",
                    { class: "tl-tools" },
                    button("Fit", "fit everything (0)", () => this.keys.actions[0]()),
                    button("Measure", "measure between two edges (M)", () => this.startMeasuring()),
                    button("PNG", "save the picture as PNG", () => timeline.exporting.savePng(app)),
                    button("SVG", "save the picture as SVG", () => timeline.exporting.saveSvg(app)),
                    button("?", "keys and gestures (?)", () => window.musetrace.help())
                )
            );
            this._showChoice(app.choice);
            this._fillLegend();
        }

        /** The colours of the ops; a click searches for one. */
        _fillLegend() {
            const { app } = this;
            const used = new Set(app.run.jobs.map((job) => job.op_index));
            const shown = app.run.ops.map((op, index) => [op, index]).filter(([, index]) => used.has(index));
            const entries = shown.slice(0, MOST_LEGEND_ENTRIES).map(([op, index]) => {
                const find = () => this.search.find({ op: op.name, leastNs: "", mostNs: "" }, true);
                const swatch = timeline.pointing.swatch(app, index, 1);
                const words = make("span", {}, timeline.fittingText.shown(op.name));
                const title = "find spans of this op";
                return make("button", { type: "button", class: "tl-link", title: title, onclick: find }, swatch, words);
            });
            this.parts.legend.replaceChildren(...entries, ...this._forms());
        }

        /** What the forms of spans say, in the order in which a row has them. */
        _forms() {
            return FORMS.map(([strip, words]) =>
                make("span", { class: "tl-form" }, make("i", { class: "tl-swatch tl-form-" + strip }), words)
            );
        }

        _blockInput() {
            const input = make("input", { type: "text", class: "tl-input", size: 7, "aria-label": "block, as r0b12" });
            input.addEventListener("change", () => {
                const match = /^\s*(?:r(\d+)\s*)?b?(\d+)\s*$/i.exec(input.value);
                if (match) {
                    this.app.choose({ block: `r${match[1] || this.app.run.ranks[0]}b${match[2]}` });
                } else {
                    this.app.say("A block is written r0b12: rank 0, block 12.");
                }
            });
            return input;
        }

        _stepControl(run) {
            const go = () => this.goTo();
            if (run.steps.length > MOST_STEP_ENTRIES) {
                const input = make("input", { type: "text", class: "tl-input", size: 5, placeholder: "all" });
                input.addEventListener("change", go);
                return input;
            }
            const entries = run.steps.map((one) => [String(one.step), String(one.step)]);
            return timeline.elements.select([["", "all"], ...entries], "", go);
        }

        _layersInput() {
            const input = make("input", { type: "text", class: "tl-input", size: 6, placeholder: "all, 3, 3-7" });
            input.addEventListener("change", () => this.goTo());
            return input;
        }

        /** Show the step and layers that the controls name. */
        goTo() {
            const { app, controls } = this;
            const step = /^\d+$/.test(controls.step.value) ? Number(controls.step.value) : null;
            const layers = controls.layers.value;
            const ranks = timeline.model.ranksOf(app.run, app.choice.ranks);
            const everything = step === null && !layers.trim();
            const found = everything ? app.run : timeline.model.windowOf(app.run, ranks, step, layers);
            if (!found) {
                app.say(`There is nothing of ${layers || "this step"} here; several are written 3-7.`);
                return;
            }
            app.setView({ ...app.view, from: found.from, to: found.to });
            document.activeElement.blur();
        }

        /** The block whose warps are meant: the chosen span's, else the first that is in sight. */
        _blockNearby() {
            const { app } = this;
            const row = app.rows[Math.floor(app.view.top)];
            const one = app.details ? app.details.span : row;
            const isBlock = one && one.block !== null && one.block !== undefined;
            return isBlock ? `r${one.rank}b${one.block}` : app.choice.block;
        }

        countFrom(zero) {
            this.app.zeroWanted = zero;
            this.controls.zero.value = zero;
            this.app.setView(this.app.view);
            this.details.fill();
        }

        // ---- what the pointer does ----

        hover(place) {
            const { app } = this;
            this.place = place;
            const found = place ? timeline.pointing.at(app, place.plotX, place.plotY) : null;
            const edge = place && this.isMeasuring ? timeline.measure.snapped(app, place.plotX, place.plotY) : null;
            app.hover = place ? { x: place.x, span: found.span, edge: edge } : null;
            this.parts.readout.replaceChildren(...timeline.pointing.readout(app, found));
            app.redrawOverlay();
        }

        async click(place) {
            const { app } = this;
            if (this.isMeasuring) {
                const edge = timeline.measure.snapped(app, place.plotX, place.plotY);
                this.isMeasuring = timeline.measure.take(app, edge).edges.length < 2;
                this._showMeasuring();
                return;
            }
            const found = timeline.pointing.at(app, place.plotX, place.plotY);
            if (found.span) {
                this.details.choose(found.span, false);
            } else if (found.cell) {
                await this._clickCell(found);
            } else {
                this.details.clear();
            }
        }

        /** Where only the raster is here, the server knows which span it is. */
        async _clickCell(found) {
            const { app } = this;
            const slack = Math.ceil((app.view.to - app.view.from) / app.geometry.plot.width);
            const strip = app.strips() === 1 ? found.cell.strip : found.strip;
            try {
                const asked = { row: found.row, strip: strip, t: Math.round(found.time), slack: slack };
                const answer = await this.asking.json("at", { ...app.place(), ...asked });
                if (answer && answer.span) {
                    this.details.choose(answer.span, false);
                } else if (answer) {
                    app.say("No span lies at exactly this time; zoom in (W).");
                }
            } catch (error) {
                app.say(error.message);
            }
        }

        startMeasuring() {
            this.isMeasuring = true;
            this.app.measure = null;
            this._showMeasuring();
            this.app.redrawOverlay();
        }

        _showMeasuring() {
            this.parts.overlay.classList.toggle("tl-measuring", Boolean(this.isMeasuring));
            this.app.say(timeline.measure.words(this.app));
        }

        escape() {
            const { app } = this;
            if (this.isMeasuring || app.measure) {
                this.isMeasuring = false;
                app.measure = null;
                this.parts.overlay.classList.remove("tl-measuring");
                app.say("");
                app.redrawOverlay();
                app.changed();
            } else if (app.area) {
                this.area.clear();
            } else {
                this.details.clear();
            }
        }

        // ---- what the page shows of the state ----

        _showChoice(choice) {
            const { controls } = this;
            controls.rows.value = choice.rows;
            controls.ranks.value = choice.ranks;
            controls.block.value = choice.block;
            this.blockField.hidden = choice.rows !== "warps";
            this.ranksField.hidden = choice.rows === "warps";
        }

        _showWindow(app) {
            const { exact, readable } = timeline.axis;
            const { view, zero } = app;
            const from = exact(Math.floor(view.from) - zero.time);
            const length = Math.ceil(view.to) - Math.floor(view.from);
            const words = timeline.fittingText.shown(zero.words);
            const about = app.answer && app.answer.sampled ? "about " : "";
            const how = app.answer && app.answer.mode === "spans" ? "one by one" : "as a raster";
            const spans = app.answer ? `, ${about}${exact(app.answer.count)} spans ${how}` : "";
            this.parts.window.textContent =
                `${readable(length)} (${exact(length)} ns) from ${from} ns of ${words}${spans}${this._aligned()}`;
            if (this.place) {
                this.hover(this.place);
            }
            this.details.refresh();
        }

        /** How well ranks of several clocks stand beside each other. */
        _aligned() {
            const { run, choice } = this.app;
            const several = choice.rows !== "warps" && timeline.model.ranksOf(run, choice.ranks).length > 1;
            if (!several || run.uncertainty_ns === 0) {
                return "";
            }
            return run.uncertainty_ns === null
                ? "; ranks are not aligned"
                : `; ranks aligned to \u00b1 ${timeline.axis.exact(run.uncertainty_ns)} ns`;
        }

        _recolourPanels() {
            this.details.fill();
            this.area.fill();
            this._fillLegend();
        }

        _observe() {
            const { app } = this;
            this.sizes = new ResizeObserver(() => app.resize());
            this.sizes.observe(this.parts.base);
            this.themes = new MutationObserver(() => app.recolour());
            this.themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
            this.scheme = window.matchMedia("(prefers-color-scheme: dark)");
            this.onScheme = () => app.recolour();
            this.scheme.addEventListener("change", this.onScheme);
        }

        stop() {
            this.keys.stop();
            this.sizes.disconnect();
            this.themes.disconnect();
            this.scheme.removeEventListener("change", this.onScheme);
            clearTimeout(this.app.stateTimer);
            clearTimeout(this.app.pendingTimer);
        }
    }

    timeline.View = View;
})();
