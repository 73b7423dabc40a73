// What stands around the rows: the time axis, the band of launches, the names of rows, the scroll bar.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const AXIS_PX = 26;
    const BAND_PX = 18;
    const SCROLL_PX = 11;
    const LEAST_LABEL_PX = 13;
    const TICK_APART_PX = 84;

    /** Where the parts of the canvas are, in px. */
    function geometry(width, height, perRank) {
        const left = width < 560 ? 62 : perRank ? 92 : 80;
        const top = AXIS_PX + BAND_PX;
        return {
            width: width,
            height: height,
            plot: {
                left: left,
                top: top,
                width: Math.max(width - left - SCROLL_PX, 10),
                height: Math.max(height - top, 10),
            },
            band: { top: AXIS_PX, height: BAND_PX },
            scroll: { left: width - SCROLL_PX, top: top, width: SCROLL_PX, height: Math.max(height - top, 10) },
        };
    }

    function drawFrame(surface, app) {
        const { geometry: place, palette } = app;
        surface.fill(0, 0, place.width, place.plot.top, palette.paper);
        surface.fill(0, place.plot.top, place.plot.left, place.plot.height, palette.paper);
        drawAxis(surface, app);
        drawBand(surface, app);
        drawStops(surface, app);
        drawLabels(surface, app);
        drawScroll(surface, app);
        const { left, top } = place.plot;
        surface.line(left - 0.5, AXIS_PX, left - 0.5, place.height, palette.rule);
        surface.line(0, top - 0.5, place.width, top - 0.5, palette.rule);
    }

    function drawAxis(surface, app) {
        const { view, palette, zero } = app;
        const plot = app.geometry.plot;
        const found = timeline.axis.ticks(view.from, view.to, plot.width, zero.time, TICK_APART_PX);
        surface.text(found.unit, plot.left - 6, AXIS_PX / 2, palette.softInk, { align: "right" });
        surface.clip(plot.left, 0, plot.width, AXIS_PX);
        for (const tick of found.ticks) {
            const x = plot.left + timeline.transform.xOf(view, plot.width, tick.time);
            surface.line(x, AXIS_PX - 5, x, AXIS_PX, palette.faintInk);
            surface.text(tick.label, x + 4, AXIS_PX / 2, palette.softInk, {});
        }
        surface.unclip();
    }

    function drawGrid(surface, app) {
        const { view, palette, zero } = app;
        const plot = app.geometry.plot;
        surface.fill(plot.left, plot.top, plot.width, plot.height, palette.paper);
        for (const tick of timeline.axis.ticks(view.from, view.to, plot.width, zero.time, TICK_APART_PX).ticks) {
            const x = plot.left + timeline.transform.xOf(view, plot.width, tick.time);
            surface.line(x, plot.top, x, plot.top + plot.height, palette.grid);
        }
    }

    /** The launches of the first rank that is shown; where they are too narrow, the steps. */
    function drawBand(surface, app) {
        const { view, palette, run, geometry: place } = app;
        const plot = place.plot;
        const band = place.band;
        const { boxes, isSteps } = bandBoxes(app);
        surface.text(isSteps ? "step" : run.hasLayers ? "layer" : "launch", plot.left - 6, band.top + 9, palette.softInk, {
            align: "right",
        });
        surface.clip(plot.left, band.top, plot.width, band.height);
        for (const one of boxes) {
            const x0 = plot.left + timeline.transform.xOf(view, plot.width, one.from);
            const x1 = plot.left + timeline.transform.xOf(view, plot.width, one.to);
            const left = Math.max(x0, plot.left - 2);
            const right = Math.min(x1, plot.left + plot.width + 2);
            const width = Math.max(right - left - 1, 1);
            surface.fill(left, band.top + 2, width, band.height - 4, palette.grid);
            const words = isSteps ? String(one.step) : bandWords(run, one, width);
            const fitting = timeline.fittingText.fitted(words, width - 6, "11px " + palette.font);
            if (fitting) {
                surface.text(fitting, left + 4, band.top + band.height / 2 + 0.5, palette.ink, {});
            }
        }
        surface.unclip();
    }

    function bandWords(run, launch, width) {
        const kind = timeline.fittingText.shown(launch.kind);
        const number = run.hasLayers ? launch.layer : launch.launch;
        return number < 0 ? kind : width > 90 ? number + "  " + kind : String(number);
    }

    /** The launches in sight, or the steps when there are too many launches to see one. */
    function bandBoxes(app) {
        const { view, run } = app;
        const inSight = (one) => one.to > view.from && one.from < view.to;
        const launches = app.launches.filter(inSight);
        const isSteps = run.steps.length > 0 && launches.length > app.geometry.plot.width / 14;
        return { boxes: isSteps ? run.steps.filter(inSight) : launches, isSteps: isSteps };
    }

    /** The launch or step of the band under an x, null for none. */
    function bandAt(app, x) {
        const plot = app.geometry.plot;
        const time = timeline.transform.timeAt(app.view, plot.width, x - plot.left);
        return bandBoxes(app).boxes.find((one) => one.from <= time && time < one.to) || null;
    }

    /** The numbers of the stops whose lines are in sight, where there is room for them. */
    function drawStops(surface, app) {
        const { view, palette, answer, geometry: place } = app;
        const plot = place.plot;
        let free = plot.left;
        for (const stop of (answer && answer.stops) || []) {
            const x = plot.left + timeline.transform.xOf(view, plot.width, stop.time);
            const words = (plot.width > 700 ? "stop " : "") + stop.number;
            const half = timeline.fittingText.widthOf(words, "10px " + palette.font) / 2 + 4;
            if (x - half >= free && x + half <= plot.left + plot.width) {
                surface.fill(x - half, place.band.top + 2, 2 * half, place.band.height - 4, palette.softInk);
                surface.text(words, x, place.band.top + place.band.height / 2 + 0.5, palette.paper, {
                    align: "center",
                    size: 10,
                });
                free = x + half;
            }
        }
    }

    /** Whether a row has its label: each rank's first, and those behind that do not reach into the next rank. */
    function isLabelled(rows, row, rowPx) {
        const inGroup = row - rows[row].groupStart;
        const covered = Math.min(rows.length, row + Math.ceil(LEAST_LABEL_PX / rowPx)) - 1;
        const every = timeline.axis.niceStep(LEAST_LABEL_PX / rowPx);
        return inGroup === 0 || (inGroup % every === 0 && rows[covered].rank === rows[row].rank);
    }

    function drawLabels(surface, app) {
        const { view, palette, rows, geometry: place } = app;
        const plot = place.plot;
        const first = Math.max(0, Math.floor(view.top));
        const last = Math.min(rows.length, Math.ceil(view.top + plot.height / view.rowPx));
        surface.clip(0, plot.top, place.width, plot.height);
        for (let row = first; row < last; row += 1) {
            const y = plot.top + timeline.transform.yOf(view, row);
            if (row > 0 && rows[row].rank !== rows[row - 1].rank) {
                surface.line(0, y, plot.left + plot.width, y, palette.faintInk);
            }
            const bottom = y + Math.max(view.rowPx, LEAST_LABEL_PX);
            if (isLabelled(rows, row, view.rowPx) && bottom <= place.height + 2) {
                const words = timeline.fittingText.fitted(rows[row].label, plot.left - 10, "11px " + palette.font);
                const middle = y + Math.max(view.rowPx, LEAST_LABEL_PX) / 2;
                surface.text(words, plot.left - 6, middle, palette.softInk, { align: "right" });
            }
            if (view.rowPx >= 8 && row > first) {
                surface.line(plot.left, y, plot.left + plot.width, y, palette.grid);
            }
        }
        surface.unclip();
    }

    function drawScroll(surface, app) {
        const { palette, geometry: place } = app;
        const thumb = scrollThumb(app);
        surface.fill(place.scroll.left, 0, place.scroll.width, place.height, palette.paper);
        if (thumb) {
            surface.fill(place.scroll.left + 2, thumb.top, place.scroll.width - 4, thumb.height, palette.rule);
        }
    }

    /** Where the scroll bar's thumb is; null when all rows are in sight. */
    function scrollThumb(app) {
        const { view, rows, geometry: place } = app;
        const fitting = place.plot.height / view.rowPx;
        if (fitting >= rows.length - 1e-6) {
            return null;
        }
        const height = Math.max((place.scroll.height * fitting) / rows.length, 18);
        const share = view.top / (rows.length - fitting);
        return { top: place.scroll.top + share * (place.scroll.height - height), height: height };
    }

    timeline.drawFrame = {
        geometry: geometry,
        drawFrame: drawFrame,
        drawGrid: drawGrid,
        bandAt: bandAt,
        isLabelled: isLabelled,
        scrollThumb: scrollThumb,
    };
})();
