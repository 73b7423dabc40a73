// Search by op or job and by duration; next and previous hit.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    const NOTHING = { op: "", leastNs: "", mostNs: "" };

    /** Whether a hit comes before another: by begin, then rank, step and number. */
    function isBefore(one, other) {
        for (const key of ["begin", "rank", "step", "id"]) {
            if (one[key] !== other[key]) {
                return one[key] < other[key];
            }
        }
        return false;
    }

    class Search {
        /** `fields` are {op, least, most, count}: three inputs and where the number of hits is told. */
        constructor(app, fields, details) {
            this.app = app;
            this.fields = fields;
            this.details = details;
            this.asking = new timeline.fetching.Single();
            this._forget();
            for (const field of [fields.op, fields.least, fields.most]) {
                field.addEventListener("keydown", (event) => this._key(event));
                // The cross in the field; Enter is a key.
                field.addEventListener("search", () => field.value || this._fromFields());
            }
        }

        _forget() {
            this.app.hits = null;
            this.index = -1; // of the hit that is shown, among those that are here
            this.total = 0;
            this.passed = 0; // hits before those that are here
            this.hasMore = false;
        }

        _key(event) {
            if (event.key === "Enter") {
                event.preventDefault();
                event.target.blur(); // n and N are keys again
                this._fromFields();
            } else if (event.key === "Escape") {
                event.target.blur();
            }
            event.stopPropagation();
        }

        /** Search for what the fields hold; go on to the next hit when that is what was searched for last. */
        async _fromFields() {
            const { op, least, most } = this.fields;
            const wanted = { op: op.value.trim(), leastNs: least.value.trim(), mostNs: most.value.trim() };
            if (JSON.stringify(wanted) === JSON.stringify(this.app.found || NOTHING)) {
                await this.go(1);
            } else {
                await this.find(wanted, true);
            }
        }

        /** Search for {op, leastNs, mostNs}; `isGoing` goes to the first hit from the window's begin on. */
        async find(wanted, isGoing) {
            const { app, fields } = this;
            [fields.op.value, fields.least.value, fields.most.value] = [wanted.op, wanted.leastNs, wanted.mostNs];
            app.found = JSON.stringify(wanted) === JSON.stringify(NOTHING) ? null : wanted;
            this._forget();
            this.asking.cancel();
            app.changed();
            if (app.found) {
                const from = Math.floor(app.view.from) - 1;
                const isHere = (await this._page(from > 0 ? from + ".0.0.0" : "")) && app.hits.length > 0;
                if (!isHere && this.total > 0) {
                    await this._page("");
                }
                if (isGoing) {
                    await this.go(1);
                }
            }
            this._tell();
            app.redraw();
        }

        async _ask(more) {
            const { app } = this;
            const { op, leastNs, mostNs } = app.found;
            try {
                return await this.asking.json("search", { ...app.place(), op: op, min_ns: leastNs, max_ns: mostNs, ...more });
            } catch (error) {
                app.say(error.message);
                return null;
            }
        }

        /** The hits behind a place; false when there is no answer. */
        async _page(after) {
            const found = await this._ask({ after: after });
            if (found) {
                this.app.hits = found.hits;
                [this.total, this.passed, this.hasMore] = [found.total, found.passed, found.more];
                this.app.redraw();
            }
            return Boolean(found);
        }

        /** The hits before those that are here, at least one, from a window that grows or shrinks until they fit. */
        async _pageBefore() {
            const { app } = this;
            const first = app.hits[0];
            let length = app.view.to - app.view.from;
            for (let least = 1, most = Infinity; ; ) {
                const from = Math.max(app.run.from, Math.floor(first.begin - length));
                const found = await this._ask({ from: from, to: first.begin + 1 });
                if (!found) {
                    return false;
                }
                const before = found.hits.filter((hit) => hit.begin >= from && isBefore(hit, first));
                if (!found.more && (before.length > 0 || from === app.run.from)) {
                    app.hits = [...before, ...app.hits];
                    this.passed -= before.length;
                    this.index += before.length;
                    return before.length > 0;
                }
                [least, most] = found.more ? [least, length] : [length, most];
                length = most === Infinity ? length * 8 : Math.sqrt(least * most);
                if (most - least < 2) {
                    return false; // more than a page of them begin at once
                }
            }
        }

        /** The next (1) or previous (-1) hit; behind the last comes the first. */
        async go(direction) {
            const { app } = this;
            if (!app.hits || !app.hits.length) {
                return;
            }
            let next = this.index + direction;
            if (next >= app.hits.length && this.hasMore) {
                const last = app.hits[app.hits.length - 1];
                if (!(await this._page([last.begin, timeline.state.idOf(last)].join(".")))) {
                    return;
                }
                next = 0;
            } else if (next >= app.hits.length && this.passed > 0) {
                if (!(await this._page(""))) {
                    return;
                }
                next = 0;
            } else if (next < 0 && this.passed > 0) {
                if (!(await this._pageBefore())) {
                    return;
                }
                next = this.index - 1;
            } else if (next < 0 && this.hasMore) {
                app.say("This is the first hit.");
                return;
            }
            this.index = (next + app.hits.length) % app.hits.length;
            this._tell();
            await this.details.choose(app.hits[this.index], true);
        }

        _tell() {
            const { exact } = timeline.axis;
            const { count } = this.fields;
            if (!this.app.found) {
                count.textContent = "";
            } else if (!this.total) {
                count.textContent = "no hit";
            } else {
                const place = this.index >= 0 ? exact(this.passed + this.index + 1) + " of " : "";
                count.textContent = place + exact(this.total);
            }
        }
    }

    timeline.Search = Search;
})();
