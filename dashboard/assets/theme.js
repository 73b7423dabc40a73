// The page's theme: the system's, until the button asks for another. The choice is kept in this browser.
(function () {
    "use strict";

    const KEY = "musetrace-theme";
    const CHOICES = ["auto", "light", "dark"];
    const system = window.matchMedia("(prefers-color-scheme: dark)");

    function stored() {
        try {
            const choice = window.localStorage.getItem(KEY);
            return CHOICES.includes(choice) ? choice : "auto";
        } catch (error) {
            return "auto"; // storage is switched off
        }
    }

    let choice = stored();

    function effective() {
        return choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    }

    function apply() {
        const root = document.documentElement;
        root.dataset.themeChoice = choice;
        if (choice === "auto") {
            delete root.dataset.theme;
        } else {
            root.dataset.theme = choice;
        }
        return effective();
    }

    function next() {
        choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
        try {
            window.localStorage.setItem(KEY, choice);
        } catch (error) {
            // the choice then lasts as long as the page
        }
    }

    system.addEventListener("change", function () {
        window.dash_clientside.set_props("theme", { data: apply() });
    });
    apply();

    window.dash_clientside = window.dash_clientside || {};
    window.dash_clientside.musetrace = Object.assign({}, window.dash_clientside.musetrace, {
        theme: function (clicks) {
            if (clicks) {
                next();
            }
            return apply();
        },
    });
})();
