// How numbers stand in a table. The grid evaluates `musetraceNumber(params.value, decimals)`.
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
    };
    window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, functions);
})();
