// Text that has to fit: measured once a character, cut with an ellipsis.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const ELLIPSIS = "\u2026";
    const LONGEST = 200;
    const widths = new Map();
    let pen = null;

    function widthOf(words, font) {
        const key = font + "\n" + words;
        if (!widths.has(key)) {
            if (widths.size > 5000) {
                widths.clear();
            }
            pen = pen || document.createElement("canvas").getContext("2d");
            pen.font = font;
            widths.set(key, pen.measureText(words).width);
        }
        return widths.get(key);
    }

    /** Words as they may be shown: characters that cannot be seen, or that turn the text around, are marked. */
    function shown(words) {
        return String(words)
            .slice(0, LONGEST)
            .replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");
    }

    /** As much of the words as fits, "" when that is nothing worth showing. */
    function fitted(words, room, font) {
        if (widthOf(words, font) <= room) {
            return words;
        }
        let [low, high] = [0, words.length];
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (widthOf(words.slice(0, middle) + ELLIPSIS, font) <= room) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        return low < 2 ? "" : words.slice(0, low) + ELLIPSIS;
    }

    timeline.fittingText = { widthOf: widthOf, shown: shown, fitted: fitted };
})();
