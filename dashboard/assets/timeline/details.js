// The span that is chosen: its times to the ns, what it waited for, who waited for it.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const SHOWN_CONSUMERS = 8;
    const make = (...all) => timeline.elements.make(...all);
    const button = (...all) => timeline.elements.button(...all);

    /** Chooses spans and fills the panel. */
    class Details {
        constructor(app, panel) {
            this.app = app;
            this.panel = panel;
            this.asking = new timeline.fetching.Single();
            this.stepping = new timeline.fetching.Single();
        }

        /** Choose a span by rank, step and id. `isShown` brings it in sight. */
        async choose(span, isShown) {
            const { app } = this;
            try {
                const found = await this.asking.json("span", {
                    run: app.options.run,
                    rank: span.rank,
                    step: span.step,
                    id: span.id,
                });
                if (!found) {
                    return;
                }
                app.details = found;
                if (isShown) {
                    this.bring(found.span);
                }
                this.fill();
                app.redrawOverlay();
                app.changed();
            } catch (error) {
                app.say(error.message);
            }
        }

        clear() {
            this.asking.cancel();
            this.app.details = null;
            this.fill();
            this.app.redrawOverlay();
            this.app.changed();
        }

        /** Scroll and pan until a span is in sight; zoom only where it would be too thin or too wide. */
        bring(span) {
            const { app } = this;
            const row = app.rowOf(span);
            if (row === null) {
                app.say("The span is on rank " + span.rank + ", block " + span.block + ", which is not shown.");
                return;
            }
            const { view, limits, geometry } = app;
            const length = view.to - view.from;
            const px = ((span.end - span.begin) / length) * geometry.plot.width;
            let next = timeline.transform.rowShown(view, row, app.rows.length, geometry.plot.height);
            if (px < 3 || px > 0.9 * geometry.plot.width) {
                next = timeline.transform.around(next, span.begin, span.end, 0.2, limits);
            } else if (span.begin < view.from || span.end > view.to) {
                next = timeline.transform.panned(next, (span.begin + span.end - view.from - view.to) / 2, limits);
            }
            app.setView(next);
        }

        /** Zoom to the chosen span; false when there is none. */
        fit() {
            const { app } = this;
            if (!app.details || app.rowOf(app.details.span) === null) {
                return false;
            }
            const span = app.details.span;
            const shown = timeline.transform.rowShown(
                app.view,
                app.rowOf(span),
                app.rows.length,
                app.geometry.plot.height
            );
            app.setView(timeline.transform.around(shown, span.begin, span.end, 0.5, app.limits));
            return true;
        }

        /** The next (1) or previous (-1) span of the row; one press after the other. */
        step(direction) {
            this.steps = (this.steps || Promise.resolve()).then(() => this._step(direction));
            return this.steps;
        }

        async _step(direction) {
            const { app } = this;
            if (!app.details) {
                app.say("Choose a span first: click one.");
                return;
            }
            const { rank, step, id } = app.details.span;
            try {
                const place = { ...app.place(), rank: rank, step: step, id: id, dir: direction };
                const found = await this.stepping.json("next", place);
                if (found && found.span) {
                    await this.choose(found.span, true);
                } else if (found) {
                    app.say(direction > 0 ? "This is the row's last span." : "This is the row's first span.");
                }
            } catch (error) {
                app.say(error.message);
            }
        }

        /** Fill again when times count from another begin. */
        refresh() {
            if (this.app.details && this.filledZero !== this.app.zero.time) {
                this.fill();
            }
        }

        fill() {
            const found = this.app.details;
            this.filledZero = this.app.zero.time;
            this.panel.replaceChildren();
            this.panel.hidden = !found;
            if (!found) {
                return;
            }
            const { span } = found;
            const about = this.app.run.jobById.get(span.job) || this.app.run.unknownJob;
            const close = button("\u00d7", "close (Esc)", () => this.clear());
            close.classList.add("tl-close");
            const swatch = timeline.pointing.swatch(this.app, about.op_index, about.strip);
            const parts = [
                make("header", {}, swatch, make("b", {}, about.shown), close),
                this._facts(span, about),
                this._producer(found, about),
                this._consumers(found),
            ];
            this.panel.append(...parts.filter((part) => part !== null));
        }

        _facts(span, about) {
            const { exact } = timeline.axis;
            const zero = this.app.zero;
            const shown = timeline.fittingText.shown;
            const list = make("dl", { class: "tl-facts" });
            const add = (name, value, title) =>
                list.append(make("dt", {}, name), make("dd", { title: title || null }, value));
            const margin = span.uncertainty_ns === null ? "unknown" : exact(span.uncertainty_ns) + " ns";
            add("long", exact(span.end - span.begin) + " ns  \u00b1 " + margin);
            add("begin", exact(span.begin - zero.time) + " ns", "clock " + span.begin_ns + " ns");
            add("end", exact(span.end - zero.time) + " ns", "clock " + span.end_ns + " ns");
            add("from", shown(zero.words));
            add("op", shown(about.op) + ", " + shown(about.kind));
            add("where", this._where(span));
            add("launch", this._launch(span));
            if (span.iteration > 0) {
                add("iteration", exact(span.iteration));
            }
            if (span.flag) {
                add("flag", shown(span.flag_name || String(span.flag)));
            }
            return list;
        }

        _where(span) {
            const sm = span.sm === null || span.sm === undefined ? "" : ", SM " + span.sm;
            return `rank ${span.rank}, block ${span.block}, warp ${span.warp}${sm}`;
        }

        _launch(span) {
            const kind = timeline.fittingText.shown(span.kind || "");
            if (!this.app.run.hasLayers) {
                return `step ${span.step}, launch ${span.launch}${kind ? ", " + kind : ""}`;
            }
            const layer = span.layer >= 0 ? `layer ${span.layer}${kind ? ", " + kind : ""}` : kind;
            return `step ${span.step}, ${layer || "launch " + span.launch}`;
        }

        _producer(found, about) {
            if (about.strip !== 3 && !found.producer) {
                return null;
            }
            const box = make("section", {}, make("h4", {}, "waited for"));
            if (found.producer_note) {
                box.append(make("p", { class: "tl-soft" }, found.producer_note));
            }
            if (found.producer) {
                box.append(this._link(found.producer));
                const late = found.producer.late_by_ns;
                if (late !== null && late !== undefined) {
                    const words = `its end came ${timeline.axis.exact(late)} ns into the wait`;
                    box.append(make("p", { class: "tl-soft" }, words));
                }
            } else {
                box.append(make("p", { class: "tl-soft" }, found.producer_why || "It is not known."));
            }
            return box;
        }

        _consumers(found) {
            if (!found.consumers.length) {
                return null;
            }
            const total = timeline.axis.exact(found.consumers_total);
            const box = make("section", {}, make("h4", {}, `waited for by ${total}`));
            for (const consumer of found.consumers.slice(0, SHOWN_CONSUMERS)) {
                box.append(this._link(consumer));
            }
            if (found.consumers_total > SHOWN_CONSUMERS) {
                const rest = timeline.axis.exact(found.consumers_total - SHOWN_CONSUMERS);
                box.append(make("p", { class: "tl-soft" }, `and ${rest} more`));
            }
            return box;
        }

        /** A line that chooses another span. */
        _link(span) {
            const about = this.app.run.jobById.get(span.job) || this.app.run.unknownJob;
            const line = make(
                "button",
                { type: "button", class: "tl-link", onclick: () => this.choose(span, true) },
                timeline.pointing.swatch(this.app, about.op_index, about.strip),
                make("span", {}, about.shown),
                make("span", { class: "tl-soft" }, `r${span.rank} b${span.block}`),
                make("data", { value: span.end - span.begin }, timeline.axis.exact(span.end - span.begin) + " ns")
            );
            return line;
        }
    }

    timeline.Details = Details;
})();
