// The mouse over the canvas: zoom, pan, scroll, click, measure, choose an area.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const CLICK_PX = 4;
    const ZOOM_PER_PX = 0.0022; // a notch of 100 px: a factor of 1.25
    const LINE_PX = 30;

    class PointerInput {
        constructor(view, canvas) {
            this.view = view; // {app, details, area}
            this.app = view.app;
            this.canvas = canvas;
            this.drag = null;
            this.at = null; // the pointer within the canvas
            canvas.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
            canvas.addEventListener("pointerdown", (event) => this._down(event));
            canvas.addEventListener("pointermove", (event) => this._move(event));
            canvas.addEventListener("pointerup", (event) => this._up(event));
            canvas.addEventListener("pointercancel", () => this._cancel());
            canvas.addEventListener("pointerleave", () => this._leave());
        }

        _place(event) {
            const box = this.canvas.getBoundingClientRect();
            const plot = this.app.geometry.plot;
            const [x, y] = [event.clientX - box.left, event.clientY - box.top];
            const inPlot = x >= plot.left && x < plot.left + plot.width && y >= plot.top;
            return { x: x, y: y, plotX: x - plot.left, plotY: y - plot.top, inPlot: inPlot };
        }

        /** The time under the pointer, or that in the window's middle. */
        timeAtPointer() {
            const { view, geometry } = this.app;
            const x = this.at && this.at.inPlot ? this.at.plotX : geometry.plot.width / 2;
            return timeline.transform.timeAt(view, geometry.plot.width, x);
        }

        _wheel(event) {
            const { app } = this;
            event.preventDefault();
            this.at = this._place(event);
            const unit = event.deltaMode === 1 ? LINE_PX : event.deltaMode === 2 ? 400 : 1;
            const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
            const plot = app.geometry.plot;
            const perPx = (app.view.to - app.view.from) / plot.width;
            if (event.altKey || !(this.at.x >= plot.left && this.at.x < plot.left + plot.width)) {
                app.setView({ ...app.view, top: app.view.top + dy / app.view.rowPx });
            } else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
                app.setView(timeline.transform.panned(app.view, (dx || dy) * perPx, app.limits));
            } else {
                const factor = Math.exp(Math.max(-240, Math.min(dy, 240)) * ZOOM_PER_PX);
                app.setView(timeline.transform.zoomed(app.view, factor, this.timeAtPointer(), app.limits));
            }
        }

        _down(event) {
            if (event.button !== 0) {
                return;
            }
            const { app } = this;
            const place = this._place(event);
            const scroll = app.geometry.scroll;
            this.canvas.setPointerCapture(event.pointerId);
            if (document.activeElement instanceof HTMLElement) {
                document.activeElement.blur(); // or a field would go on taking the keys
            }
            event.preventDefault();
            const what = place.x >= scroll.left ? "scroll" : !place.inPlot ? "frame" : event.shiftKey ? "area" : "pan";
            this.drag = { what: what, from: place, view: app.view, isMoved: false };
        }

        _move(event) {
            const place = this._place(event);
            this.at = place;
            const { app, drag } = this;
            if (!drag) {
                this.view.hover(place.inPlot ? place : null);
                return;
            }
            const [dx, dy] = [place.x - drag.from.x, place.y - drag.from.y];
            drag.isMoved = drag.isMoved || Math.hypot(dx, dy) >= CLICK_PX;
            if (!drag.isMoved) {
                return;
            }
            const plot = app.geometry.plot;
            const length = drag.view.to - drag.view.from;
            if (drag.what === "pan") {
                const moved = timeline.transform.panned(drag.view, (-dx * length) / plot.width, app.limits);
                app.setView({ ...moved, top: drag.view.top - dy / drag.view.rowPx });
            } else if (drag.what === "scroll") {
                const by = (dy / app.geometry.scroll.height) * app.rows.length;
                app.setView({ ...app.view, top: drag.view.top + by });
            } else if (drag.what === "area") {
                app.area = this._area(drag.from, place);
                app.redrawOverlay();
            }
        }

        _area(one, other) {
            const { view, geometry, rows } = this.app;
            const width = geometry.plot.width;
            const times = [one, other].map((place) =>
                Math.round(timeline.transform.timeAt(view, width, Math.max(0, Math.min(place.plotX, width))))
            );
            const lines = [one, other].map((place) =>
                Math.max(0, Math.min(Math.floor(timeline.transform.rowAt(view, place.plotY)), rows.length - 1))
            );
            return {
                from: Math.min(...times),
                to: Math.max(...times),
                rowFrom: Math.min(...lines),
                rowTo: Math.max(...lines) + 1,
            };
        }

        _up(event) {
            const { drag, view } = this;
            this.drag = null;
            if (!drag) {
                return;
            }
            const place = this._place(event);
            if (drag.what === "area" && drag.isMoved) {
                const area = this._area(drag.from, place);
                if (area.to > area.from) {
                    view.area.choose(area);
                }
            } else if (!drag.isMoved && drag.what === "frame") {
                this._pickBand(place);
            } else if (!drag.isMoved && drag.what !== "scroll") {
                view.click(place);
            }
        }

        /** A click on a launch or step above the rows fits it. */
        _pickBand(place) {
            const { app } = this;
            if (place.y < app.geometry.plot.top && place.x >= app.geometry.plot.left) {
                const one = timeline.drawFrame.bandAt(app, place.x);
                if (one) {
                    app.setView({ ...app.view, from: one.from, to: one.to });
                }
            }
        }

        _cancel() {
            if (this.drag && this.drag.what === "area") {
                this.app.area = null;
                this.app.redrawOverlay();
            }
            this.drag = null;
        }

        _leave() {
            this.at = null;
            this.view.hover(null);
        }
    }

    timeline.PointerInput = PointerInput;
})();
