// Answers of the window route: a JSON header and arrays behind it, and what is asked of them.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const ARRAYS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float64: Float64Array };
    const NONE = 255;

    function padded(bytes) {
        return (bytes + 7) & ~7;
    }

    /** The header of an answer with its arrays by name; the arrays are views of the buffer. */
    function decode(buffer) {
        const length = new DataView(buffer).getUint32(0, true);
        const text = new TextDecoder("utf-8").decode(new Uint8Array(buffer, 4, length));
        const answer = JSON.parse(text);
        let offset = padded(4 + length);
        answer.data = {};
        for (const array of answer.arrays) {
            const Type = ARRAYS[array.dtype];
            if (!Type) {
                throw new Error("the answer has an array of type " + array.dtype);
            }
            answer.data[array.name] = new Type(buffer, offset, array.length);
            offset += padded(array.length * Type.BYTES_PER_ELEMENT);
        }
        return answer;
    }

    /** Where the spans of each row begin in `order`, which lists spans by row, then begin. */
    function indexSpans(answer) {
        const { row, begin } = answer.data;
        const first = answer.rows[0];
        const counts = new Uint32Array(Math.max(answer.rows[1] - first, 0) + 2);
        for (let i = 0; i < row.length; i += 1) {
            counts[row[i] - first + 1] += 1;
        }
        for (let i = 1; i < counts.length; i += 1) {
            counts[i] += counts[i - 1];
        }
        answer.rowStart = counts.slice();
        const next = counts;
        const order = new Uint32Array(row.length);
        for (let i = 0; i < row.length; i += 1) {
            order[next[row[i] - first]++] = i;
        }
        for (let i = 0; i + 1 < answer.rowStart.length; i += 1) {
            order
                .subarray(answer.rowStart[i], answer.rowStart[i + 1])
                .sort((one, other) => begin[one] - begin[other] || one - other);
        }
        answer.order = order;
    }

    /** The numbers of the spans of a row, by begin. */
    function spansOfRow(answer, row) {
        const place = row - answer.rows[0];
        if (!answer.order || place < 0 || place + 1 >= answer.rowStart.length) {
            return [];
        }
        return answer.order.subarray(answer.rowStart[place], answer.rowStart[place + 1]);
    }

    /**
     * The span of a row under a time, or at most `slack` ns beside it; -1 when there is none.
     * `allows(span)` leaves out those of other strips. Of several the shortest is taken: it is drawn on top.
     */
    function spanAt(answer, row, time, slack, allows) {
        const { begin, dur } = answer.data;
        let best = -1;
        let bestKey = Infinity;
        for (const span of spansOfRow(answer, row)) {
            const beside = Math.max(begin[span] - time, time - begin[span] - dur[span], 0);
            if (beside > slack || !allows(span)) {
                continue;
            }
            const key = beside > 0 ? 1e15 + beside : dur[span];
            if (key < bestKey) {
                best = span;
                bestKey = key;
            }
        }
        return best;
    }

    /** The edge of a span of a row that is nearest to a time, at most `slack` ns away; null when there is none. */
    function edgeAt(answer, row, time, slack) {
        const { begin, dur } = answer.data;
        let best = null;
        for (const span of spansOfRow(answer, row)) {
            for (const edge of [begin[span], begin[span] + dur[span]]) {
                const away = Math.abs(edge - time);
                if (away <= slack && (best === null || away < best.away)) {
                    best = { time: edge, span: span, isBegin: edge === begin[span], away: away };
                }
            }
        }
        return best;
    }

    /** What a raster shows at a place: {op, share (0 to 1), strip}, null for nothing. */
    function cellAt(answer, row, time, strip) {
        const [rows, columns] = answer.bins;
        const [first, last] = answer.rows;
        const line = Math.floor(((row - first) / (last - first)) * rows);
        const column = Math.floor(((time - answer.from) / (answer.to - answer.from)) * columns);
        if (line < 0 || line >= rows || column < 0 || column >= columns) {
            return null;
        }
        const cell = (line * answer.strips + Math.min(strip, answer.strips - 1)) * columns + column;
        const op = answer.data.op[cell];
        if (op === NONE) {
            return null;
        }
        const of = answer.data.strip ? answer.data.strip[cell] : answer.strips > 1 ? strip : 1;
        return { op: op, share: answer.data.share[cell] / 255, strip: of };
    }

    timeline.answer = {
        NONE: NONE,
        decode: decode,
        indexSpans: indexSpans,
        spansOfRow: spansOfRow,
        spanAt: spanAt,
        edgeAt: edgeAt,
        cellAt: cellAt,
    };
})();
