// The colours of the canvas: those of the page's theme and of the run's ops, and the forms of kinds of jobs.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const PLAIN = ["paper", "panel", "ink", "soft-ink", "faint-ink", "rule", "grid", "accent", "good", "poor", "bad"];
    // Top down in a row: what is asked for, what is done, what goes between blocks and ranks, what is waited for.
    const STRIPS = ["loads", "work", "sends", "waits"];
    const STRIP_OF_KIND = { load: 0, prefetch: 0, compute: 1, send: 2, recv: 2, sync: 2, wait: 3 };
    // How strong a strip is painted where there is no room for its form.
    const STRENGTH = [0.5, 1, 0.9, 0.26];
    const UNKNOWN = { name: "?", light: "#717a8b", dark: "#818b9c" };

    function rgbOf(hex) {
        const value = parseInt(hex.slice(1), 16);
        return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
    }

    function hexOf(rgb) {
        return "#" + rgb.map((part) => Math.round(part).toString(16).padStart(2, "0")).join("");
    }

    /** `share` of one colour, the rest of the other. */
    function mixed(one, other, share) {
        const [a, b] = [rgbOf(one), rgbOf(other)];
        return hexOf(a.map((part, i) => part * share + b[i] * (1 - share)));
    }

    function luminance(hex) {
        const [r, g, b] = rgbOf(hex).map((part) => {
            const value = part / 255;
            return value <= 0.04045 ? value / 12.92 : Math.pow((value + 0.055) / 1.055, 2.4);
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }

    /** Black or white, whichever is easier to read on a colour. */
    function textOn(hex) {
        const light = luminance(hex);
        return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#0d1117" : "#ffffff";
    }

    function isDark() {
        const theme = document.documentElement.dataset.theme;
        return theme ? theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
    }

    function opStyle(op, paper, dark) {
        const fill = dark ? op.dark : op.light;
        return {
            name: op.name,
            fill: fill,
            rgb: rgbOf(fill),
            text: textOn(fill),
            loadFill: mixed(fill, paper, dark ? 0.26 : 0.16),
            waitFill: mixed(fill, paper, dark ? 0.14 : 0.08),
            waitInk: mixed(fill, paper, dark ? 0.5 : 0.42),
            flat: STRENGTH.map((strength) => mixed(fill, paper, strength)),
        };
    }

    /** The palette of the theme that the page has now. */
    function read(run) {
        const style = getComputedStyle(document.documentElement);
        const palette = { isDark: isDark() };
        for (const name of PLAIN) {
            palette[name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase())] =
                style.getPropertyValue("--" + name).trim() || "#808080";
        }
        palette.font = style.getPropertyValue("--font").trim() || "sans-serif";
        palette.mono = style.getPropertyValue("--mono").trim() || "monospace";
        palette.ops = run.ops.map((op) => opStyle(op, palette.paper, palette.isDark));
        palette.unknown = opStyle(UNKNOWN, palette.paper, palette.isDark);
        return palette;
    }

    /** The strip of a kind of job; what is not known is drawn as work. */
    function stripOf(kind) {
        return STRIP_OF_KIND[kind] === undefined ? 1 : STRIP_OF_KIND[kind];
    }

    timeline.palette = {
        STRIPS: STRIPS,
        STRENGTH: STRENGTH,
        read: read,
        stripOf: stripOf,
        textOn: textOn,
    };
})();
