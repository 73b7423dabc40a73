// Making elements of the page. Names are only ever set as text.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    /** An element with attributes (on...: listeners) and children (elements or texts). */
    function make(tag, attributes, ...children) {
        const element = document.createElement(tag);
        for (const [name, value] of Object.entries(attributes || {})) {
            if (name.startsWith("on")) {
                element.addEventListener(name.slice(2), value);
            } else if (value !== null && value !== false) {
                element.setAttribute(name, value === true ? "" : value);
            }
        }
        element.append(...children.filter((child) => child !== null && child !== undefined));
        return element;
    }

    function button(words, title, onclick) {
        return make("button", { type: "button", class: "tl-button", title: title, onclick: onclick }, words);
    }

    function labelled(words, control) {
        control.setAttribute("aria-label", words);
        return make("label", { class: "tl-field" }, make("span", {}, words), control);
    }

    function select(entries, value, onchange) {
        const control = make("select", { class: "tl-select", onchange: () => onchange(control.value) });
        for (const [entry, words] of entries) {
            control.append(make("option", { value: entry }, words));
        }
        control.value = value;
        return control;
    }

    timeline.elements = { make: make, button: button, labelled: labelled, select: select };
})();
