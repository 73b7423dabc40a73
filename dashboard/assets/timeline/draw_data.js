// The rows' content: a raster far out, exact spans near.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const LEAST_ALPHA = 0.16; // what takes hardly any of a cell's time is still seen
    const MOST_LABELS = 300;
    const LABEL_LEAST_PX = 40;

    /** One word of RGBA for each share, of a strip's strength. */
    function alphas(strength) {
        const table = new Uint32Array(256);
        for (let share = 1; share < 256; share += 1) {
            const alpha = strength * Math.max(share / 255, LEAST_ALPHA / strength);
            table[share] = Math.min(255, Math.round(255 * alpha)) << 24 >>> 0;
        }
        return table;
    }

    /** The raster as a canvas of one pixel a cell; kept with the answer until the palette changes. */
    function rasterCanvas(answer, palette) {
        if (answer.canvas && answer.palette === palette) {
            return answer.canvas;
        }
        const [rows, columns] = answer.bins;
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [Math.max(columns, 1), Math.max(rows * answer.strips, 1)];
        const context = canvas.getContext("2d");
        const image = context.createImageData(canvas.width, canvas.height);
        paint(answer, palette, new Uint32Array(image.data.buffer));
        context.putImageData(image, 0, 0);
        answer.canvas = canvas;
        answer.palette = palette;
        return canvas;
    }

    function paint(answer, palette, pixels) {
        const { op, share, strip } = answer.data;
        const colours = new Uint32Array(256).fill(wordOf(palette.unknown.rgb));
        palette.ops.forEach((style, index) => {
            colours[index] = wordOf(style.rgb);
        });
        const tables = timeline.palette.STRENGTH.map(alphas);
        const columns = answer.bins[1];
        const none = timeline.answer.NONE;
        for (let line = 0, cell = 0; cell < op.length; line += 1) {
            const ofLine = tables[answer.strips > 1 ? line % answer.strips : 1];
            for (const end = cell + columns; cell < end; cell += 1) {
                if (op[cell] !== none) {
                    const alpha = answer.strips === 1 && strip ? tables[strip[cell] & 3] : ofLine;
                    pixels[cell] = alpha[share[cell] || 1] | colours[op[cell]];
                }
            }
        }
    }

    function wordOf(rgb) {
        return (rgb[0] | (rgb[1] << 8) | (rgb[2] << 16)) >>> 0;
    }

    /** A raster where it belongs under the view; only the part in sight. */
    function drawRaster(surface, answer, view, plot, palette) {
        const canvas = rasterCanvas(answer, palette);
        const { xOf, yOf } = timeline.transform;
        const [first, last] = answer.rows;
        const place = {
            left: xOf(view, plot.width, answer.from),
            right: xOf(view, plot.width, answer.to),
            top: yOf(view, first),
            bottom: yOf(view, last),
        };
        const columnPx = (place.right - place.left) / canvas.width;
        const linePx = (place.bottom - place.top) / canvas.height;
        // Far larger pictures than the plot are cut first: a browser draws huge ones wrongly.
        const c0 = Math.max(0, Math.floor(-place.left / columnPx));
        const c1 = Math.min(canvas.width, Math.ceil((plot.width - place.left) / columnPx));
        const l0 = Math.max(0, Math.floor(-place.top / linePx));
        const l1 = Math.min(canvas.height, Math.ceil((plot.height - place.top) / linePx));
        if (c1 > c0 && l1 > l0) {
            surface.picture(
                canvas,
                [c0, l0, c1 - c0, l1 - l0],
                plot.left + place.left + c0 * columnPx,
                plot.top + place.top + l0 * linePx,
                (c1 - c0) * columnPx,
                (l1 - l0) * linePx
            );
        }
    }

    /** Where a strip stands within a row: its top and height in px. */
    function stripBand(strip, strips, rowPx) {
        const padding = rowPx >= 14 ? 1 : rowPx >= 4 ? 0.5 : 0;
        const room = rowPx - 2 * padding;
        if (strips === 1) {
            return [padding, room];
        }
        // Work has the most room.
        const shares = [0.24, 0.38, 0.16, 0.22];
        let top = padding;
        for (let above = 0; above < strip; above += 1) {
            top += room * shares[above];
        }
        return [top, room * shares[strip]];
    }

    /** All spans of an answer that are in sight, and names on those with room. */
    function drawSpans(surface, answer, view, plot, run, palette) {
        const { row, begin, dur, job, flag } = answer.data;
        const pxPerNs = plot.width / (view.to - view.from);
        const labels = [];
        const draw = (span, of) => {
            const about = run.jobById.get(job[span]) || run.unknownJob;
            if (answer.strips === 1 && LAYERS[about.strip] !== of) {
                return;
            }
            const x0 = (begin[span] - view.from) * pxPerNs;
            const x1 = x0 + dur[span] * pxPerNs;
            const y = (row[span] - view.top) * view.rowPx;
            if (x1 < 0 || x0 > plot.width || y + view.rowPx < 0 || y > plot.height) {
                return;
            }
            const box = boxOf(x0, x1, y, timeline.lanes.bandOf(answer, span, about.strip, view.rowPx), plot);
            const style = palette.ops[about.op_index] || palette.unknown;
            drawSpan(surface, box, about, style);
            if (flag && flag[span]) {
                surface.stroke(box.x, box.y, box.width, box.height, palette.bad, 1);
            }
            const hasRoom = box.width >= LABEL_LEAST_PX && box.height >= 9 && labels.length < MOST_LABELS;
            if (hasRoom && !timeline.lanes.isShared(answer, span, about.strip, view.rowPx)) {
                const x = Math.max(box.x, plot.left);
                labels.push({ box: { ...box, x: x, width: box.x + box.width - x }, about: about, style: style });
            }
        };
        drawStops(surface, answer, view, plot, palette);
        // In one strip, work is drawn over loads, and these over waits.
        for (const of of answer.strips === 1 ? [0, 1, 2] : [0]) {
            for (let place = 0; place < answer.order.length; place += 1) {
                draw(answer.order[place], of);
            }
        }
        labels.forEach((label) => drawLabel(surface, label, palette));
    }

    const LAYERS = [1, 2, 2, 0];

    /** Where the last of the rows in sight passed each stop. */
    function drawStops(surface, answer, view, plot, palette) {
        for (const stop of answer.stops || []) {
            const x = plot.left + timeline.transform.xOf(view, plot.width, stop.time);
            surface.line(x, plot.top, x, plot.top + plot.height, palette.faintInk, 1, [2, 3]);
        }
    }

    /** The box of a span within the plot: at least 1 px wide, with a gap before the next where there is room. */
    function boxOf(x0, x1, y, band, plot) {
        const left = Math.max(x0, -4);
        const right = Math.min(x1, plot.width + 4);
        const wide = right - left;
        const gap = wide >= 4 ? 1 : 0;
        // Whole pixels downwards: rows of a broken height would blur into each other.
        const top = Math.round(y + band[0]);
        return {
            x: plot.left + left,
            y: plot.top + top,
            width: Math.max(wide - gap, 1),
            height: Math.max(Math.round(y + band[0] + band[1]) - top, 1),
        };
    }

    /** Loads are outlined, waits hatched, work filled, sends filled and thin. */
    function drawSpan(surface, box, about, style) {
        const { x, y, width, height } = box;
        const hasRoom = width >= 3 && height >= 3.5;
        if (about.strip === 0 && hasRoom) {
            surface.fill(x, y, width, height, style.loadFill);
            surface.stroke(x, y, width, height, style.fill, 1);
        } else if (about.strip === 3 && hasRoom) {
            surface.hatch(x, y, width, height, style.waitFill, style.waitInk);
        } else if (about.strip === 1 || about.strip === 2) {
            surface.fill(x, y, width, height, style.fill);
        } else {
            surface.fill(x, y, width, height, style.flat[about.strip]);
        }
    }

    function drawLabel(surface, { box, about, style }, palette) {
        const size = box.height >= 14 ? 11 : box.height >= 11 ? 10 : 9;
        const words = timeline.fittingText.fitted(about.shown, box.width - 8, `${size}px ${palette.font}`);
        if (words) {
            const isFilled = about.strip === 1 || about.strip === 2;
            const colour = isFilled ? style.text : palette.ink;
            surface.text(words, box.x + 4, box.y + box.height / 2 + 0.5, colour, { size: size });
        }
    }

    timeline.drawData = {
        drawRaster: drawRaster,
        drawSpans: drawSpans,
        stripBand: stripBand,
        boxOf: boxOf,
    };
})();
