// The view as a PNG or an SVG file, made in the page.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const PNG_SCALE = 2;

    function drawAll(surface, app) {
        app.drawBase(surface);
        timeline.drawOverlay.drawOverlay(surface, app, false);
    }

    /** The picture as a canvas, at twice the size. */
    function toCanvas(app) {
        const canvas = document.createElement("canvas");
        canvas.width = app.geometry.width * PNG_SCALE;
        canvas.height = app.geometry.height * PNG_SCALE;
        const context = canvas.getContext("2d");
        context.scale(PNG_SCALE, PNG_SCALE);
        drawAll(new timeline.surface.CanvasSurface(context, app.palette), app);
        return canvas;
    }

    /** The picture as the text of an SVG document. */
    function toSvg(app) {
        const surface = new timeline.surface.SvgSurface(app.geometry.width, app.geometry.height, app.palette);
        drawAll(surface, app);
        return surface.toString();
    }

    function save(blob, ending) {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(blob);
        link.download = "timeline." + ending;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }

    /** Rows as the text of a CSV file: names in quotes, numbers plain. */
    function toCsv(names, rows) {
        const cell = (value) => (typeof value === "number" ? String(value) : '"' + value.replace(/"/g, '""') + '"');
        return [names, ...rows].map((row) => row.map(cell).join(",") + "\r\n").join("");
    }

    timeline.exporting = {
        toCsv: toCsv,
        saveCsv: (names, rows) => save(new Blob([toCsv(names, rows)], { type: "text/csv" }), "csv"),
        toCanvas: toCanvas,
        toSvg: toSvg,
        savePng: (app) => toCanvas(app).toBlob((blob) => save(blob, "png"), "image/png"),
        saveSvg: (app) => save(new Blob([toSvg(app)], { type: "image/svg+xml" }), "svg"),
    };
})();
