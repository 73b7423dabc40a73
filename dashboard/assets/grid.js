// How numbers stand in a table. The grid evaluates `musetraceNumber(params.value, decimals)`, and
// `musetraceBar(params.value, longest)` for the style of a cell that has a bar behind its number.
(function () {
    "use strict";

    const DASH = "\u2013";

    const functions = {
        musetraceNumber: function (value, decimals) {
            if (value === null || value === undefined || Number.isNaN(value)) {
                return DASH;
            }
            return Number(value).toLocaleString("en-US", {
                minimumFractionDigits: decimals,
                maximumFractionDigits: decimals,
            });
        },
        musetraceBar: function (value, longest) {
            const part = Math.max(0, Math.min(1, Number(value) / longest)) || 0;
            const stop = (100 * part).toFixed(1) + "%";
            return { backgroundImage: `linear-gradient(to right, var(--wait-fill) ${stop}, transparent ${stop})` };
        },
    };
    window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, functions);
})();
