// Search by op or job and by duration; next and previous hit.
(function () {
    "use strict";
    window.musetrace = window.musetrace || {};
    const timeline = (window.musetrace.timeline = window.musetrace.timeline || {});

    class Search {
        /** `fields` are {op, least, most, count}: three inputs and where the number of hits is told. */
        constructor(app, fields, details) {
            this.app = app;
            this.fields = fields;
            this.details = details;
            this.asking = new timeline.fetching.Single();
            this.index = -1;
            this.total = 0;
            this.passed = 0; // hits before those that are here
            for (const field of [fields.op, fields.least, fields.most]) {
                field.addEventListener("keydown", (event) => this._key(event));
                // The cross in the field; Enter is a key.
                field.addEventListener("search", () => field.value || this._fromFields());
            }
        }

        _key(event) {
            if (event.key === "Enter") {
                event.preventDefault();
                this._fromFields().then((isNew) => {
                    if (!isNew) {
                        this.go(event.shiftKey ? -1 : 1);
                    }
                });
            } else if (event.key === "Escape") {
                event.target.blur();
            }
            event.stopPropagation();
        }

        /** Search for what the fields hold; false when that is what was searched for last. */
        async _fromFields() {
            const { op, least, most } = this.fields;
            const wanted = { op: op.value.trim(), leastNs: least.value.trim(), mostNs: most.value.trim() };
            const isSame = JSON.stringify(wanted) === JSON.stringify(this.app.found || { op: "", leastNs: "", mostNs: "" });
            if (isSame) {
                return false;
            }
            await this.find(wanted, true);
            return true;
        }

        /** Search for {op, leastNs, mostNs}; `isGoing` goes to the first hit of the window. */
        async find(wanted, isGoing) {
            const { app, fields } = this;
            [fields.op.value, fields.least.value, fields.most.value] = [wanted.op, wanted.leastNs, wanted.mostNs];
            const isEmpty = !wanted.op && !wanted.leastNs && !wanted.mostNs;
            app.found = isEmpty ? null : wanted;
            app.hits = null;
            [this.index, this.total, this.passed] = [-1, 0, 0];
            this.asking.cancel();
            app.changed();
            if (!isEmpty && (await this._page("")) && isGoing) {
                await this.go(1);
            }
            this._tell();
            app.redraw();
        }

        /** The hits behind a place; false when the server refused. */
        async _page(after) {
            const { app } = this;
            const { op, leastNs, mostNs } = app.found;
            const asked = { ...app.place(), op: op, min_ns: leastNs, max_ns: mostNs, after: after };
            try {
                const found = await this.asking.json("search", asked);
                if (!found) {
                    return false;
                }
                this.total = found.total;
                app.hits = found.hits;
                this.hasMore = found.more;
                app.redraw();
                return true;
            } catch (error) {
                app.say(error.message);
                return false;
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
                const passed = this.passed + app.hits.length;
                if (!(await this._page([last.begin, timeline.state.idOf(last)].join(".")))) {
                    return;
                }
                this.passed = passed;
                next = 0;
            } else if (next >= app.hits.length && this.passed > 0) {
                if (!(await this._page(""))) {
                    return;
                }
                this.passed = next = 0;
            }
            this.index = ((next % app.hits.length) + app.hits.length) % app.hits.length;
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
