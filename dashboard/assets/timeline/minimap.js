// The whole run in a strip, with the window as a brush: drag it, its edges, or draw a new one.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const EDGE_PX = 6;
    const LEAST_BRUSH_PX = 5;

    /** Where the window stands in a minimap `width` px wide: [left, right], never too thin to see. */
    function brushOf(view, run, width) {
        const whole = Math.max(run.to - run.from, 1);
        const left = ((view.from - run.from) / whole) * width;
        const right = ((view.to - run.from) / whole) * width;
        const missing = Math.max(LEAST_BRUSH_PX - (right - left), 0) / 2;
        return [left - missing, right + missing];
    }

    /** What a press at x takes hold of: from, to, window or new. */
    function gripOf(brush, x) {
        if (Math.abs(x - brush[0]) <= EDGE_PX && brush[1] - brush[0] > 3 * EDGE_PX) {
            return "from";
        }
        if (Math.abs(x - brush[1]) <= EDGE_PX && brush[1] - brush[0] > 3 * EDGE_PX) {
            return "to";
        }
        return x >= brush[0] - 2 && x <= brush[1] + 2 ? "window" : "new";
    }

    class Minimap {
        constructor(app, canvas) {
            this.app = app;
            this.canvas = canvas;
            this.drag = null;
            this.picture = null;
            canvas.addEventListener("pointerdown", (event) => this._down(event));
            canvas.addEventListener("pointermove", (event) => this._move(event));
            canvas.addEventListener("pointerup", (event) => this._up(event));
            canvas.addEventListener("pointercancel", () => (this.drag = null));
        }

        _x(event) {
            return event.clientX - this.canvas.getBoundingClientRect().left;
        }

        _time(x) {
            const { run } = this.app;
            return run.from + (x / this.canvas.clientWidth) * (run.to - run.from);
        }

        _down(event) {
            const { view, run } = this.app;
            const x = this._x(event);
            const grip = gripOf(brushOf(view, run, this.canvas.clientWidth), x);
            this.drag = { grip: grip, x: x, view: view };
            this.canvas.setPointerCapture(event.pointerId);
            event.preventDefault();
        }

        _move(event) {
            const { app, drag } = this;
            const x = this._x(event);
            if (!drag) {
                const grip = gripOf(brushOf(app.view, app.run, this.canvas.clientWidth), x);
                this.canvas.style.cursor = { new: "crosshair", window: "grab" }[grip] || "ew-resize";
                return;
            }
            const [then, now] = [this._time(drag.x), this._time(x)];
            const by = now - then;
            const window = {
                window: [drag.view.from + by, drag.view.to + by],
                from: [Math.min(now, drag.view.to - 1), drag.view.to],
                to: [drag.view.from, Math.max(now, drag.view.from + 1)],
                new: [Math.min(then, now), Math.max(then, now)],
            }[drag.grip];
            if (drag.grip !== "new" || Math.abs(x - drag.x) > 3) {
                app.setView({ ...app.view, from: window[0], to: window[1] });
            }
        }

        _up(event) {
            const { app, drag } = this;
            if (drag && drag.grip === "new" && Math.abs(this._x(event) - drag.x) <= 3) {
                // A click beside the window brings it there.
                const length = app.view.to - app.view.from;
                const from = this._time(drag.x) - length / 2;
                app.setView({ ...app.view, from: from, to: from + length });
            }
            this.drag = null;
        }

        forget() {
            this.picture = null;
        }

        draw(surface) {
            const { app, canvas } = this;
            const { palette, run, view } = app;
            const [width, height] = [canvas.clientWidth, canvas.clientHeight];
            surface.fill(0, 0, width, height, palette.panel);
            if (!this.picture) {
                this.picture = pictureOf(run.minimap, palette);
            }
            if (this.picture) {
                const { width: columns, height: lines } = this.picture;
                surface.picture(this.picture, [0, 0, columns, lines], 0, 2, width, height - 4);
            }
            for (const hit of app.hits || []) {
                const x = ((hit.begin - run.from) / Math.max(run.to - run.from, 1)) * width;
                surface.fill(x, 0, 1.5, 6, palette.accent);
            }
            const [left, right] = brushOf(view, run, width);
            surface.fill(0, 0, left, height, palette.panel + "b0");
            surface.fill(right, 0, width - right, height, palette.panel + "b0");
            surface.stroke(left, 0, right - left, height, palette.accent, 1.5);
        }
    }

    /** The busy share over the run, a lane for each strip; null when the run has none. */
    function pictureOf(minimap, palette) {
        if (!minimap || !minimap.share.length) {
            return null;
        }
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [minimap.bins, minimap.strips];
        const context = canvas.getContext("2d");
        for (let strip = 0; strip < minimap.strips; strip += 1) {
            const lane = minimap.share.slice(strip * minimap.bins, (strip + 1) * minimap.bins);
            const most = Math.max(1, ...lane) / timeline.palette.STRENGTH[strip];
            for (let bin = 0; bin < minimap.bins; bin += 1) {
                const share = lane[bin];
                if (share > 0) {
                    const alpha = Math.round(255 * Math.max((share / most) * 0.8, 0.06));
                    context.fillStyle = palette.softInk + alpha.toString(16).padStart(2, "0");
                    context.fillRect(bin, strip, 1, 1);
                }
            }
        }
        return canvas;
    }

    timeline.minimap = { Minimap: Minimap, brushOf: brushOf, gripOf: gripOf };
})();
