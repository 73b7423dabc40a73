"use strict";
// Draws the figures in the theme of the reader's system, and again when that changes.
(() => {
    const { figures, config } = JSON.parse(document.getElementById("figures").textContent);
    const dark = window.matchMedia("(prefers-color-scheme: dark)");

    // What differs in the dark theme is kept as [path, value].
    function figureOf(entry) {
        const figure = structuredClone(entry.figure);
        if (dark.matches) {
            for (const [path, value] of entry.dark) {
                const last = path[path.length - 1];
                path.slice(0, -1).reduce((part, key) => part[key], figure)[last] = value;
            }
        }
        return figure;
    }

    function draw() {
        for (const entry of figures) {
            const { data, layout } = figureOf(entry);
            Plotly.react(entry.id, data, layout, config);
        }
    }

    dark.addEventListener("change", draw);
    draw();
})();
