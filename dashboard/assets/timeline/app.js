// One block view: what is shown, when it is drawn, and when the server is asked again.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const STRIPS_FROM_PX = 20; // lower rows have one strip
    const STATE_AFTER_MS = 250;
    const WHOLE_FROM_NS = 2000; // longer windows rest at whole ns
    const PENDING_MS = 2000;

    class App {
        /** `parts` are the page's elements, `options` {run: number, onState: called with the state's fields}. */
        constructor(parts, run, options) {
            this.parts = parts;
            this.options = options;
            this.run = run;
            this.limits = { from: run.from, to: run.to };
            this.choice = { rows: "blocks", ranks: "all", block: "" };
            this.zeroWanted = "auto";
            this.rows = [];
            this.launches = [];
            this.rowNumbers = new Map();
            this.view = { from: run.from, to: run.to, top: 0, rowPx: 1 };
            this.answer = this.overview = null;
            this.details = this.hover = this.area = this.measure = this.hits = this.found = null;
            this.palette = timeline.palette.read(run);
            this.geometry = timeline.drawFrame.geometry(600, 400, true);
            this.minimap = new timeline.minimap.Minimap(this, parts.minimap);
            this.windows = new timeline.fetching.WindowFetcher(
                (answer, question) => this._onAnswer(answer, question),
                (sentence) => {
                    this.say(sentence);
                    this.redraw();
                }
            );
            this.frame = this.stateTimer = 0;
            this.isDirty = { base: true, overlay: true };
            this.painted = { seq: 0, isExact: false };
        }

        // ---- what is shown ----

        strips() {
            return this.view.rowPx >= STRIPS_FROM_PX ? 4 : 1;
        }

        rowOf(span) {
            const row = this.rowNumbers.get(timeline.model.rowKey(this.choice.rows, span));
            return row === undefined ? null : row;
        }

        rowsFit() {
            return Math.abs(this.view.rowPx - this._fitted().rowPx) < 1e-6;
        }

        _fitted() {
            const height = this.geometry.plot.height;
            return timeline.transform.rowsFitted(this.view, this.rows.length, height);
        }

        /** The parameters that say which rows there are. */
        place() {
            const { rows, ranks, block } = this.choice;
            return { run: this.options.run, rows: rows, ranks: ranks, block: rows === "warps" ? block : "" };
        }

        /** Choose which rows there are; fields that are not given stay. */
        async choose(choice) {
            const wanted = { ...this.choice, ...choice };
            if (wanted.rows === "warps" && !wanted.block) {
                wanted.block = `r${this.run.ranks[0]}b0`;
            }
            const before = this.choice;
            this.choice = wanted;
            try {
                const found = await timeline.fetching.json("rows", this.place());
                if (this.choice !== wanted) {
                    return;
                }
                this._takeRows(found.rows);
            } catch (error) {
                this.choice = before;
                this.say(error.message);
            }
            this.parts.onChoice(this.choice);
        }

        _takeRows(found) {
            const mode = this.choice.rows;
            this.rows = timeline.model.prepareRows(found, this.run, mode);
            this.rowNumbers = new Map(this.rows.map((row, i) => [timeline.model.rowKey(mode, row), i]));
            const ranks = timeline.model.ranksOf(this.run, this.choice.ranks);
            const first = mode === "warps" && this.rows.length ? this.rows[0].rank : ranks[0];
            this.launches = this.run.launches.filter((launch) => launch.rank === first);
            this.overview = this.hover = this.area = null;
            if (this.answer && this.answer.key !== this._key()) {
                this.answer = null;
            }
            this.setView(this._fitted());
        }

        /** Show another window or other rows: at once with what is here, then with what the server answers. */
        setView(view) {
            const limited = timeline.transform.limited(view, this.limits);
            const height = this.geometry.plot.height;
            this.view = timeline.transform.rowsLimited(limited, this.rows.length, height);
            this.zero = timeline.axis.zeroOf(this.view, this.run, this.zeroWanted, this.launches);
            this.redraw();
            this._want();
            this.changed();
        }

        fitRows() {
            this.setView(this._fitted());
        }

        /** The window as the server is asked for it. */
        _want() {
            if (!this.rows.length) {
                return;
            }
            const { view, geometry } = this;
            const first = Math.max(0, Math.floor(view.top));
            const last = Math.min(this.rows.length, Math.ceil(view.top + geometry.plot.height / view.rowPx));
            const strips = this.strips();
            this.wantedSeq = this.windows.want(this._key(), {
                ...this.place(),
                from: Math.floor(view.from),
                to: Math.ceil(view.to),
                width: Math.round(geometry.plot.width),
                row_from: first,
                row_to: Math.max(last, first + 1),
                height: Math.max(1, Math.round((last - first) * view.rowPx)),
                strips: strips,
            });
        }

        /** Ask again for what was still being made. */
        async _whenMade() {
            this._want();
            if (!this.run.minimap) {
                try {
                    const found = await timeline.fetching.json("run", { run: this.options.run });
                    this.run.minimap = found.minimap;
                    this.minimap.forget();
                    this.redraw();
                } catch (error) {
                    this.say(error.message);
                }
            }
        }

        _key() {
            return JSON.stringify([this.place(), this.strips()]);
        }

        _onAnswer(answer, question) {
            answer.seq = question.seq;
            answer.key = question.key;
            if (answer.mode === "spans") {
                timeline.answer.indexSpans(answer);
                timeline.lanes.deal(answer, (job) => (this.run.jobById.get(job) || this.run.unknownJob).strip);
                answer.stops = timeline.stops.passed(answer, this.run, this.launches);
            } else if (answer.from <= this.run.from && answer.to >= this.run.to) {
                this.overview = answer;
            }
            this.answer = answer;
            this.say([answer.sampled, answer.note].filter(Boolean).join("; "));
            this.redraw();
            clearTimeout(this.pendingTimer);
            if (answer.pending) {
                this.pendingTimer = setTimeout(() => this._whenMade(), PENDING_MS);
            }
        }

        // ---- drawing ----

        redraw() {
            this.isDirty.base = true;
            this.redrawOverlay();
        }

        redrawOverlay() {
            this.isDirty.overlay = true;
            if (!this.frame) {
                this.frame = window.requestAnimationFrame(() => this._draw());
            }
        }

        _draw() {
            this.frame = 0;
            if (this.isDirty.base) {
                this._onto(this.parts.base, (surface) => this.drawBase(surface));
                this._onto(this.parts.minimap, (surface) => this.minimap.draw(surface));
                this.parts.onWindow(this);
            }
            this._onto(this.parts.overlay, (surface) => timeline.drawOverlay.drawOverlay(surface, this, true));
            if (this.isDirty.base) {
                const seq = this.answer ? this.answer.seq : 0;
                this.painted = { seq: this.wantedSeq, isExact: seq === this.wantedSeq, frame: performance.now() };
                this.parts.root.dispatchEvent(new CustomEvent("timeline-painted", { detail: this.painted }));
            }
            this.isDirty = { base: false, overlay: false };
        }

        _onto(canvas, draw) {
            const scale = window.devicePixelRatio || 1;
            const context = canvas.getContext("2d");
            context.setTransform(scale, 0, 0, scale, 0, 0);
            context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
            draw(new timeline.surface.CanvasSurface(context, this.palette));
        }

        drawBase(surface) {
            const plot = this.geometry.plot;
            timeline.drawFrame.drawGrid(surface, this);
            surface.clip(plot.left, plot.top, plot.width, plot.height);
            const { answer, overview, view } = this;
            if (overview && overview !== answer && overview.key === this._key()) {
                timeline.drawData.drawRaster(surface, overview, view, plot, this.palette);
            }
            if (answer && answer.mode === "spans") {
                this._clearUnder(surface, answer);
                timeline.drawData.drawSpans(surface, answer, view, plot, this.run, this.palette);
            } else if (answer) {
                this._clearUnder(surface, answer);
                timeline.drawData.drawRaster(surface, answer, view, plot, this.palette);
            }
            if (!answer && this.parts.note.textContent) {
                const style = { align: "center", size: 13 };
                const [x, y] = [plot.left + plot.width / 2, plot.top + plot.height / 2];
                surface.text(this.parts.note.textContent, x, y, this.palette.softInk, style);
            }
            surface.unclip();
            timeline.drawFrame.drawFrame(surface, this);
        }

        /** Makes room for an answer over a coarser picture. */
        _clearUnder(surface, answer) {
            const plot = this.geometry.plot;
            if (!this.overview || this.overview === answer) {
                return;
            }
            const { xOf, yOf } = timeline.transform;
            const x0 = Math.max(xOf(this.view, plot.width, answer.from), 0);
            const x1 = Math.min(xOf(this.view, plot.width, answer.to), plot.width);
            const y0 = Math.max(yOf(this.view, answer.rows[0]), 0);
            const y1 = Math.min(yOf(this.view, answer.rows[1]), plot.height);
            if (x1 > x0 && y1 > y0) {
                surface.fill(plot.left + x0, plot.top + y0, x1 - x0, y1 - y0, this.palette.paper);
            }
        }

        // ---- the page around ----

        /** The canvas has another size. */
        resize() {
            const { base, overlay, minimap } = this.parts;
            const scale = window.devicePixelRatio || 1;
            const didFit = this.rowsFit();
            for (const canvas of [base, overlay, minimap]) {
                canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
                canvas.height = Math.max(1, Math.round(canvas.clientHeight * scale));
            }
            const perRank = timeline.model.ranksOf(this.run, this.choice.ranks).length > 1;
            this.geometry = timeline.drawFrame.geometry(base.clientWidth, base.clientHeight, perRank);
            this.setView(didFit ? this._fitted() : this.view);
        }

        /** The run as it is now; a window over all of it stays one. */
        async takeRun(run) {
            const wasWhole = this.view.from <= this.run.from && this.view.to >= this.run.to;
            const [area, view] = [this.area, this.view];
            this.run = run;
            this.limits = { from: run.from, to: run.to };
            this.palette = timeline.palette.read(run);
            this.minimap.forget();
            await this.choose({});
            this.area = area;
            this.setView(wasWhole ? { ...view, from: run.from, to: run.to } : view);
        }

        /** The page has another theme. */
        recolour() {
            this.palette = timeline.palette.read(this.run);
            this.minimap.forget();
            this.parts.onPalette(this);
            this.redraw();
        }

        say(sentence) {
            this.parts.note.textContent = sentence;
        }

        /** The state may be another: told a while later, when it rests. */
        changed() {
            clearTimeout(this.stateTimer);
            this.stateTimer = setTimeout(() => this.tell(), STATE_AFTER_MS);
        }

        /** A window at rest is one that an address can hold, so that its link shows the very same. */
        _settle() {
            const { from, to } = this.view;
            const grain = to - from >= WHOLE_FROM_NS ? 1 : 0.01;
            const settled = (time) => +(Math.round(time / grain) * grain).toFixed(2);
            const view = { ...this.view, from: settled(from), to: settled(to) };
            if (view.from !== from || view.to !== to) {
                this.view = timeline.transform.limited(view, this.limits);
                this.redraw();
            }
        }

        tell() {
            clearTimeout(this.stateTimer);
            this.stateTimer = 0;
            if (this.isRestoring || !this.rows.length) {
                return;
            }
            this._settle();
            const state = timeline.state.write(this);
            const text = JSON.stringify(state);
            if (text !== this.toldState) {
                this.toldState = text;
                this.options.onState(state);
            }
        }
    }

    timeline.App = App;
})();
