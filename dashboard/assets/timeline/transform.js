// Where a time and a row stand on the canvas. Pure functions: nothing here knows the page.
// A view is {from, to, top, rowPx}: the window in ns from the run's origin, the first row (a fraction when it is
// partly scrolled out) and the height of a row in px.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const LEAST_NS = 20; // the shortest window: less than a tick of the usual clock
    const LEAST_ROW_PX = 0.05;
    const MOST_ROW_PX = 160;
    const MOST_FITTED_PX = 80; // few rows are not blown up to fill the view

    function xOf(view, width, time) {
        return ((time - view.from) / (view.to - view.from)) * width;
    }

    function timeAt(view, width, x) {
        return view.from + (x / width) * (view.to - view.from);
    }

    function yOf(view, row) {
        return (row - view.top) * view.rowPx;
    }

    function rowAt(view, y) {
        return view.top + y / view.rowPx;
    }

    /** The view with a window that is neither too short nor outside of the limits {from, to}. */
    function limited(view, limits) {
        const whole = Math.max(limits.to - limits.from, LEAST_NS);
        const length = Math.min(Math.max(view.to - view.from, LEAST_NS), whole);
        const middle = (view.from + view.to) / 2;
        const asked = length === view.to - view.from ? view.from : middle - length / 2;
        const from = Math.min(Math.max(asked, limits.from), limits.from + whole - length);
        return { ...view, from: from, to: from + length };
    }

    /** The window `factor` times as long, with the time `at` where it was. */
    function zoomed(view, factor, at, limits) {
        const length = Math.max((view.to - view.from) * factor, LEAST_NS);
        const share = (at - view.from) / (view.to - view.from);
        const from = at - share * length;
        return limited({ ...view, from: from, to: from + length }, limits);
    }

    /** The window moved by `by` ns. */
    function panned(view, by, limits) {
        return limited({ ...view, from: view.from + by, to: view.to + by }, limits);
    }

    /** The window with a span in its middle, `share` of it long. */
    function around(view, begin, end, share, limits) {
        const length = Math.max((end - begin) / share, LEAST_NS);
        const middle = (begin + end) / 2;
        return limited({ ...view, from: middle - length / 2, to: middle + length / 2 }, limits);
    }

    /** The height at which all rows are in sight. */
    function fittedPx(rows, height) {
        return Math.max(Math.min(height / Math.max(rows, 1), MOST_FITTED_PX), LEAST_ROW_PX);
    }

    /** The view with rows of a possible height, and no empty space below the last one that could be filled. */
    function rowsLimited(view, rows, height) {
        const rowPx = Math.min(Math.max(view.rowPx, fittedPx(rows, height)), MOST_ROW_PX);
        const fitting = height / rowPx;
        const top = Math.max(0, Math.min(view.top, rows - fitting));
        return { ...view, top: top, rowPx: rowPx };
    }

    /** Rows `factor` times as high, with the row at `y` where it was. */
    function rowsZoomed(view, factor, y, rows, height) {
        const row = rowAt(view, y);
        const wanted = rowsLimited({ ...view, rowPx: view.rowPx * factor }, rows, height);
        return rowsLimited({ ...wanted, top: row - y / wanted.rowPx }, rows, height);
    }

    /** All rows at once. */
    function rowsFitted(view, rows, height) {
        return { ...view, top: 0, rowPx: fittedPx(rows, height) };
    }

    /** The view scrolled so that a row is in sight. */
    function rowShown(view, row, rows, height) {
        const last = view.top + height / view.rowPx - 1;
        if (row >= view.top && row <= last) {
            return view;
        }
        return rowsLimited({ ...view, top: row - height / view.rowPx / 2 }, rows, height);
    }

    timeline.transform = {
        LEAST_NS: LEAST_NS,
        xOf: xOf,
        timeAt: timeAt,
        yOf: yOf,
        rowAt: rowAt,
        limited: limited,
        zoomed: zoomed,
        panned: panned,
        around: around,
        rowsLimited: rowsLimited,
        rowsZoomed: rowsZoomed,
        rowsFitted: rowsFitted,
        rowShown: rowShown,
    };
})();
