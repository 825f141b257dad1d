// SPDX-License-Identifier: Apache-2.0
//
// The Top tab: every function with its self and total weight, sortable, filtered by the search.
import { h, integer, percent, time } from "./format.js";
import { KINDS } from "./profile.js";

const PAGE = 400; // rows put in the page at a time

const COLUMNS = [
	{ key: "self", label: "Self", numeric: true, span: 2 },
	{ key: "total", label: "Total", numeric: true, span: 2 },
	{ key: "name", label: "Function" },
	{ key: "module", label: "Module" },
	{ key: "kind", label: "Kind" },
];

export class Top {
	/* onPick(frame) is called when a function's name is chosen. */
	constructor(element, profile, unit, onPick) {
		this.profile = profile;
		this.write = unit.isTime ? time : integer;
		this.onPick = onPick;
		this.sort = { key: "self", descending: true };
		this.headers = COLUMNS.map((column) => h("th", { scope: "col", colSpan: column.span ?? 1, className: column.numeric ? "num" : "" },
			h("button", { type: "button", onclick: () => this.sortBy(column) }, column.label)));
		this.body = h("tbody");
		this.caption = h("caption");
		this.more = h("button", { type: "button", className: "more", hidden: true, onclick: () => this.append() });
		element.replaceChildren(
			h("table", { className: "top" }, this.caption, h("thead", {}, h("tr", {}, ...this.headers)), this.body), this.more);
	}

	sortBy({ key, numeric }) {
		const again = this.sort.key === key;
		this.sort = { key, descending: again ? !this.sort.descending : Boolean(numeric) };
		this.render();
	}

	/* weights: what `functions` returned; mask: frames to show, or null for all. */
	update(weights, mask, scope) {
		this.weights = weights;
		this.mask = mask;
		this.scope = scope;
		this.render();
	}

	render() {
		const { self, total } = this.weights;
		const { frames } = this.profile;
		const { key, descending } = this.sort;
		const value = { self: (f) => self[f], total: (f) => total[f], kind: (f) => KINDS[frames[f].kind] }[key] ?? ((f) => frames[f][key]);
		const sign = descending ? -1 : 1;
		this.rows = [];
		for (let frame = 0; frame < frames.length; frame++) {
			if (total[frame] > 0 && (!this.mask || this.mask[frame]))
				this.rows.push(frame);
		}
		this.rows.sort((a, b) => {
			const [x, y] = [value(a), value(b)];
			return x === y ? total[b] - total[a] : sign * (x < y ? -1 : 1);
		});
		COLUMNS.forEach((column, i) => {
			this.headers[i].setAttribute("aria-sort", column.key !== key ? "none" : descending ? "descending" : "ascending");
		});
		this.caption.textContent = `${integer(this.rows.length)} functions, ${this.scope}; percentages of ${this.write(this.weights.sum)}`;
		this.body.replaceChildren();
		this.shown = 0;
		this.append();
	}

	append() {
		const rows = this.rows.slice(this.shown, this.shown + PAGE).map((frame) => this.row(frame));
		this.body.append(...rows);
		this.shown += rows.length;
		this.more.hidden = this.shown >= this.rows.length;
		this.more.textContent = `Show ${integer(Math.min(PAGE, this.rows.length - this.shown))} more of ${integer(this.rows.length - this.shown)}`;
	}

	row(id) {
		const frame = this.profile.frames[id];
		const { self, total, sum } = this.weights;
		const num = (text) => h("td", { className: "num" }, text);
		return h("tr", {},
			num(this.write(self[id])), num(percent(self[id], sum)),
			num(this.write(total[id])), num(percent(total[id], sum)),
			h("td", { className: "name" }, h("button", { type: "button", title: "Find in the flame graph", onclick: () => this.onPick(frame) }, frame.name)),
			h("td", { className: "module", title: frame.module }, frame.module),
			h("td", { className: "kind" }, KINDS[frame.kind]));
	}
}
