// Asking the server. Windows: one question at a time, always the latest; what nobody waits for is dropped.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const BASE = "/api/";

    function address(route, parameters) {
        const query = new URLSearchParams();
        for (const [name, value] of Object.entries(parameters)) {
            if (value !== null && value !== undefined && value !== "") {
                query.set(name, String(value));
            }
        }
        return BASE + route + "?" + query.toString();
    }

    /** What the server said against a question, as one sentence. */
    async function sentenceOf(response) {
        try {
            const said = await response.json();
            return String(said.error || "The server could not answer.");
        } catch (error) {
            return "The server could not answer (" + response.status + ").";
        }
    }

    async function ask(route, parameters) {
        let response;
        try {
            response = await fetch(address(route, parameters), { credentials: "same-origin" });
        } catch (error) {
            throw new Error("The server does not answer: is musetrace view still running?");
        }
        if (!response.ok) {
            throw new Error(await sentenceOf(response));
        }
        return response;
    }

    async function json(route, parameters) {
        return (await ask(route, parameters)).json();
    }

    /**
     * Asks for windows. While a question is open, only the latest of those that follow is kept. An answer is
     * dropped when it is of another `key` (other rows, ranks or strips) than the latest question.
     */
    class WindowFetcher {
        constructor(onAnswer, onError) {
            this.onAnswer = onAnswer;
            this.onError = onError;
            this.seq = 0;
            this.latest = null;
            this.isBusy = false;
        }

        /** Ask for a window; returns the number of the question. */
        want(key, parameters) {
            this.seq += 1;
            this.latest = { key: key, parameters: { ...parameters, seq: this.seq }, seq: this.seq };
            if (!this.isBusy) {
                this._next();
            }
            return this.seq;
        }

        async _next() {
            const question = this.latest;
            this.isBusy = true;
            try {
                const response = await ask("window", question.parameters);
                const answer = timeline.answer.decode(await response.arrayBuffer());
                if (question.key === this.latest.key) {
                    this.onAnswer(answer, question);
                }
            } catch (error) {
                if (question === this.latest) {
                    this.onError(error.message);
                }
            }
            this.isBusy = false;
            if (this.latest !== question) {
                this._next();
            }
        }
    }

    /** Questions of a kind of which only the latest counts: what comes for an older one is dropped. */
    class Single {
        constructor() {
            this.latest = 0;
        }

        /** The JSON of a route, or null when another question came meanwhile. */
        async json(route, parameters) {
            const number = (this.latest += 1);
            try {
                const found = await json(route, parameters);
                return number === this.latest ? found : null;
            } catch (error) {
                if (number !== this.latest) {
                    return null;
                }
                throw error;
            }
        }

        cancel() {
            this.latest += 1;
        }
    }

    timeline.fetching = { json: json, address: address, WindowFetcher: WindowFetcher, Single: Single };
})();
