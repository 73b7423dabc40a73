// What belongs to every view: the window's title, keys, saving a picture.
(function () {
    "use strict";

    function typing(target) {
        return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
    }

    // Whole page: 1 to 9 go to a view, t changes the theme, ? tells the keys.
    document.addEventListener("keydown", function (event) {
        if (typing(event.target) || event.ctrlKey || event.metaKey || event.altKey) {
            return;
        }
        if (event.key === "?") {
            toggleHelp();
        } else if (event.key === "Escape") {
            closeHelp();
        } else if (event.key === "t") {
            document.getElementById("theme-toggle").click();
        } else if (/^[1-9]$/.test(event.key)) {
            const link = document.querySelectorAll("#navigation a")[Number(event.key) - 1];
            if (link) {
                link.click();
            }
        } else {
            return;
        }
        event.preventDefault();
    });

    const KEYS = [
        ["1 … 9", "go to a view"],
        ["t", "light, dark, or as the system"],
        ["?", "these keys"],
    ];

    // A view adds its own: musetrace.keys(["w", "zoom in"], ...), shown as long as `selector` finds something.
    const more = [];

    function rows() {
        return KEYS.concat(
            more.filter((entry) => document.querySelector(entry.selector)).flatMap((entry) => entry.keys)
        );
    }

    function closeHelp() {
        const shown = document.getElementById("help");
        if (shown) {
            shown.remove();
        }
        return Boolean(shown);
    }

    function toggleHelp() {
        if (closeHelp()) {
            return;
        }
        const help = document.createElement("dialog");
        help.id = "help";
        help.setAttribute("open", "");
        const list = document.createElement("dl");
        for (const [key, words] of rows()) {
            const term = document.createElement("dt");
            const meaning = document.createElement("dd");
            term.textContent = key;
            meaning.textContent = words;
            list.append(term, meaning);
        }
        help.append(list);
        help.addEventListener("click", closeHelp);
        document.body.append(help);
    }

    // The buttons of parts.graph(): the graph beside them, as a file.
    document.addEventListener("click", function (event) {
        const button = event.target instanceof Element ? event.target.closest(".save-picture") : null;
        const plot = button && button.closest(".graph-frame").querySelector(".js-plotly-plot");
        if (plot) {
            const { width, height } = plot.getBoundingClientRect();
            window.Plotly.downloadImage(plot, {
                format: button.value,
                filename: document.title.replace(/[^\w.-]+/g, "-"),
                width: Math.round(width),
                height: Math.round(height),
                scale: button.value === "png" ? 2 : 1,
            });
        }
    });

    window.musetrace = Object.assign(window.musetrace || {}, {
        typing: typing,
        help: toggleHelp,
        keys: function (selector, keys) {
            more.push({ selector: selector, keys: keys });
        },
    });
    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.musetrace = Object.assign({}, window.dash_clientside.musetrace, {
        title: function (shown) {
            if (shown) {
                document.title = [shown.view, shown.run, "musetrace"].join(" \u00b7 ");
            }
            return document.title;
        },
    });
})();
