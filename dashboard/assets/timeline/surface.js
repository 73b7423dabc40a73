// What the view is drawn on: a canvas, or an SVG document. Both take the same calls, so that the picture that is
// saved is the one that is seen.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const SVG = "http://www.w3.org/2000/svg";
    const HATCH_PX = 5;

    function fontOf(palette, style) {
        const family = style.mono ? palette.mono : palette.font;
        return (style.weight ? style.weight + " " : "") + (style.size || 11) + "px " + family;
    }

    class CanvasSurface {
        constructor(context, palette) {
            this.context = context;
            this.palette = palette;
            this.hatches = new Map();
        }

        fill(x, y, width, height, colour) {
            this.context.fillStyle = colour;
            this.context.fillRect(x, y, width, height);
        }

        stroke(x, y, width, height, colour, lineWidth) {
            const thick = lineWidth || 1;
            this.context.strokeStyle = colour;
            this.context.lineWidth = thick;
            this.context.strokeRect(x + thick / 2, y + thick / 2, width - thick, height - thick);
        }

        hatch(x, y, width, height, ground, ink) {
            this.context.fillStyle = ground;
            this.context.fillRect(x, y, width, height);
            this.context.fillStyle = this._hatching(ink);
            this.context.fillRect(x, y, width, height);
        }

        _hatching(ink) {
            if (!this.hatches.has(ink)) {
                const tile = document.createElement("canvas");
                tile.width = tile.height = HATCH_PX;
                const pen = tile.getContext("2d");
                pen.strokeStyle = ink;
                pen.lineWidth = 1;
                pen.beginPath();
                for (const shift of [-HATCH_PX, 0, HATCH_PX]) {
                    pen.moveTo(shift - 1, HATCH_PX + 1);
                    pen.lineTo(shift + HATCH_PX + 1, -1);
                }
                pen.stroke();
                this.hatches.set(ink, this.context.createPattern(tile, "repeat"));
            }
            return this.hatches.get(ink);
        }

        line(x1, y1, x2, y2, colour, lineWidth, dash) {
            const context = this.context;
            context.strokeStyle = colour;
            context.lineWidth = lineWidth || 1;
            context.setLineDash(dash || []);
            context.beginPath();
            context.moveTo(x1, y1);
            context.lineTo(x2, y2);
            context.stroke();
            context.setLineDash([]);
        }

        /** A curve from one place to another, level at both ends, with a point at the second. */
        flow(x1, y1, x2, y2, colour, lineWidth) {
            const bend = Math.min(Math.max(Math.abs(x2 - x1) / 2, 24), 160);
            const context = this.context;
            context.strokeStyle = colour;
            context.lineWidth = lineWidth;
            context.beginPath();
            context.moveTo(x1, y1);
            context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
            context.stroke();
            context.fillStyle = colour;
            context.beginPath();
            context.moveTo(x2 + 1, y2);
            context.lineTo(x2 - 7, y2 - 4);
            context.lineTo(x2 - 7, y2 + 4);
            context.fill();
        }

        text(words, x, y, colour, style) {
            const context = this.context;
            context.font = fontOf(this.palette, style);
            context.fillStyle = colour;
            context.textAlign = style.align || "left";
            context.textBaseline = "middle";
            context.fillText(words, x, y);
        }

        picture(canvas, source, x, y, width, height) {
            this.context.imageSmoothingEnabled = false;
            this.context.drawImage(canvas, ...source, x, y, width, height);
        }

        clip(x, y, width, height) {
            this.context.save();
            this.context.beginPath();
            this.context.rect(x, y, width, height);
            this.context.clip();
        }

        unclip() {
            this.context.restore();
        }
    }

    class SvgSurface {
        constructor(width, height, palette) {
            this.document = document.implementation.createDocument(SVG, "svg", null);
            this.palette = palette;
            this.root = this.document.documentElement;
            this._set(this.root, { width: width, height: height, viewBox: `0 0 ${width} ${height}` });
            this.definitions = this._add(this.root, "defs", {});
            this.into = [this.root];
            this.names = new Map();
        }

        _set(element, attributes) {
            for (const [name, value] of Object.entries(attributes)) {
                element.setAttribute(name, typeof value === "number" ? String(+value.toFixed(3)) : value);
            }
        }

        _add(parent, tag, attributes) {
            const element = this.document.createElementNS(SVG, tag);
            this._set(element, attributes);
            parent.appendChild(element);
            return element;
        }

        _draw(tag, attributes) {
            return this._add(this.into[this.into.length - 1], tag, attributes);
        }

        fill(x, y, width, height, colour) {
            this._draw("rect", { x: x, y: y, width: width, height: height, fill: colour });
        }

        stroke(x, y, width, height, colour, lineWidth) {
            const thick = lineWidth || 1;
            this._draw("rect", {
                x: x + thick / 2,
                y: y + thick / 2,
                width: Math.max(width - thick, 0),
                height: Math.max(height - thick, 0),
                fill: "none",
                stroke: colour,
                "stroke-width": thick,
            });
        }

        hatch(x, y, width, height, ground, ink) {
            this.fill(x, y, width, height, ground);
            this.fill(x, y, width, height, `url(#${this._hatching(ink)})`);
        }

        _hatching(ink) {
            if (!this.names.has(ink)) {
                const name = "hatch" + this.names.size;
                const pattern = this._add(this.definitions, "pattern", {
                    id: name,
                    width: HATCH_PX,
                    height: HATCH_PX,
                    patternUnits: "userSpaceOnUse",
                });
                this._add(pattern, "path", {
                    d: `M-1 1L1 -1M0 ${HATCH_PX}L${HATCH_PX} 0M${HATCH_PX - 1} ${HATCH_PX + 1}l2 -2`,
                    stroke: ink,
                });
                this.names.set(ink, name);
            }
            return this.names.get(ink);
        }

        line(x1, y1, x2, y2, colour, lineWidth, dash) {
            const attributes = { x1: x1, y1: y1, x2: x2, y2: y2, stroke: colour, "stroke-width": lineWidth || 1 };
            this._draw("line", dash ? { ...attributes, "stroke-dasharray": dash.join(" ") } : attributes);
        }

        flow(x1, y1, x2, y2, colour, lineWidth) {
            const bend = Math.min(Math.max(Math.abs(x2 - x1) / 2, 24), 160);
            const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
            this._draw("path", { d: path, fill: "none", stroke: colour, "stroke-width": lineWidth });
            this._draw("path", { d: `M${x2 + 1} ${y2}l-8 -4v8z`, fill: colour });
        }

        text(words, x, y, colour, style) {
            const anchor = { left: "start", center: "middle", right: "end" }[style.align || "left"];
            const element = this._draw("text", {
                x: x,
                y: y,
                fill: colour,
                "font-family": style.mono ? this.palette.mono : this.palette.font,
                "font-size": style.size || 11,
                "text-anchor": anchor,
                "dominant-baseline": "central",
            });
            element.textContent = words;
        }

        picture(canvas, source, x, y, width, height) {
            const cut = document.createElement("canvas");
            [cut.width, cut.height] = [Math.ceil(source[2]), Math.ceil(source[3])];
            cut.getContext("2d").drawImage(canvas, ...source, 0, 0, cut.width, cut.height);
            this._draw("image", {
                x: x,
                y: y,
                width: width,
                height: height,
                preserveAspectRatio: "none",
                style: "image-rendering: pixelated",
                href: cut.toDataURL("image/png"),
            });
        }

        clip(x, y, width, height) {
            const name = "clip" + this.definitions.childNodes.length;
            const path = this._add(this.definitions, "clipPath", { id: name });
            this._add(path, "rect", { x: x, y: y, width: width, height: height });
            this.into.push(this._draw("g", { "clip-path": `url(#${name})` }));
        }

        unclip() {
            this.into.pop();
        }

        toString() {
            return new XMLSerializer().serializeToString(this.document);
        }
    }

    timeline.surface = { CanvasSurface: CanvasSurface, SvgSurface: SvgSurface };
})();
