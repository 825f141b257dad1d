// SPDX-License-Identifier: Apache-2.0
//
// The flame graph, drawn by d3-flame-graph. The library gets a new small tree for every zoom: only
// what is wide enough to see. So its cost follows the screen, not the profile.
import flamegraph from "d3-flame-graph";
import { select } from "d3-selection";
import { colour } from "./colours.js";
import { visible } from "./tree.js";

const ROW = 18;       // pixels
const MIN_WIDTH = 0.7; // pixels; narrower frames are not drawn
const MAX_FRAMES = 6000;

export class Flame {
	/* callbacks: hover(node or -1, event), focus(node), zoom(node) */
	constructor(element, callbacks) {
		this.element = element;
		this.callbacks = callbacks;
		this.current = -1; // the node the keyboard is on
		this.chart = flamegraph()
			.cellHeight(ROW)
			.inverted(true)
			.transitionDuration(0)
			.resetHeightOnZoom(true)
			.setLabelHandler(() => "")
			.setDetailsHandler(() => {})
			.tooltip(Object.assign(() => {}, {
				show: (event, d) => callbacks.hover(d.data.node, event),
				hide: () => callbacks.hover(-1, null),
			}))
			.setColorMapper((d) => this.colourOf(d.data.node));

		/* Before the library sees it: zooming is ours. */
		element.addEventListener("click", (event) => {
			event.stopPropagation();
			const frame = event.target.closest("g.frame");
			if (frame)
				callbacks.zoom(select(frame).datum().data.node);
		}, true);
		element.addEventListener("keydown", (event) => {
			if (event.key === "Enter" && this.current >= 0) {
				event.preventDefault();
				callbacks.zoom(this.current);
			}
		});
		element.addEventListener("focus", () => {
			if (element.matches(":focus-visible")) // by keyboard: a click must not scroll under the pointer
				this.move(null);
		});
	}

	colourOf(node) {
		const state = this.mask ? (this.mask[this.tree.frameId[node]] ? "match" : "dim") : "";
		return colour(this.tree.frame(node), this.dark, state);
	}

	/* Draws `tree` zoomed to `focus`. mask: frame ids a search matched, or null. */
	draw(tree, focus, mask, dark) {
		Object.assign(this, { tree, focus, mask, dark });
		const width = Math.max(200, this.element.clientWidth);
		const { top, hidden } = visible(tree, focus, (tree.total[focus] * MIN_WIDTH) / width, MAX_FRAMES);
		this.chart.width(width);
		if (this.drawn) {
			this.chart.update(top);
		} else {
			select(this.element).datum(top).call(this.chart);
			this.drawn = true;
		}
		this.settle(width);
		if (!this.nodes.has(this.current))
			this.current = focus;
		this.mark();
		return hidden;
	}

	recolour(mask, dark) {
		Object.assign(this, { mask, dark });
		select(this.element).selectAll("g.frame > rect").attr("fill", (d) => this.colourOf(d.data.node));
	}

	/* The library grows new frames over 250 ms whatever duration it is given; put them in place now. */
	settle(width) {
		const wide = (d) => (d.x1 - d.x0) * width;
		const frames = select(this.element).selectAll("g.frame");
		frames.interrupt().attr("transform", (d) => `translate(${d.x0 * width},${d.depth * ROW})`);
		frames.select("rect").interrupt().attr("width", wide)
			.style("stroke-width", (d) => (wide(d) < 3 ? 0 : null)); // all line, no colour
		frames.select("foreignObject").select("div").interrupt().text((d) => (wide(d) < 35 ? "" : d.data.name));
		this.rows = [];
		this.nodes = new Map();
		const rows = this.rows;
		const nodes = this.nodes;
		frames.each(function (d) {
			(rows[d.depth] ??= []).push(d);
			nodes.set(d.data.node, { d, element: this });
		});
		rows.forEach((row) => row.sort((a, b) => a.x0 - b.x0));
	}

	/* Moves the keyboard's frame; null only shows where it is. */
	move(key) {
		const at = this.nodes.get(this.current)?.d;
		if (!at)
			return;
		const row = this.rows[at.depth];
		const next = {
			ArrowUp: () => at.parent,
			ArrowDown: () => at.children?.reduce((a, b) => (b.value > a.value ? b : a)),
			ArrowLeft: () => row[row.indexOf(at) - 1],
			ArrowRight: () => row[row.indexOf(at) + 1],
		}[key]?.() ?? at;
		this.current = next.data.node;
		this.mark();
		this.nodes.get(this.current).element.scrollIntoView({ block: "nearest" });
		this.callbacks.focus(this.current);
	}

	mark() {
		const old = this.element.querySelector("#frame-current");
		for (const name of ["id", "role", "aria-label", "aria-level"])
			old?.removeAttribute(name);
		const found = this.nodes.get(this.current);
		if (!found)
			return;
		found.element.setAttribute("id", "frame-current");
		found.element.setAttribute("role", "treeitem");
		found.element.setAttribute("aria-label", found.d.data.name);
		found.element.setAttribute("aria-level", found.d.depth + 1);
		this.element.setAttribute("aria-activedescendant", "frame-current");
	}

	showFocus() {
		const depth = this.nodes.get(this.focus)?.d.depth ?? 0;
		this.element.parentElement.scrollTop = Math.max(0, depth - 3) * ROW;
	}
}
