// SPDX-License-Identifier: Apache-2.0
//
// The merged call tree, in flat arrays: node 0 is the root, and a parent's index is always below
// its children's. Only the part that is wide enough to see is ever turned into objects (`visible`).
import { GROUP } from "./profile.js";

class Nodes {
	constructor() {
		this.length = 0;
		this.capacity = 1 << 12;
		this.frame = new Int32Array(this.capacity);
		this.parent = new Int32Array(this.capacity);
		this.self = new Float64Array(this.capacity);
		this.mask = (this.capacity << 1) - 1;
		this.slots = new Int32Array(this.capacity << 1).fill(-1);
	}

	slot(parent, frame) {
		let slot = Math.imul(parent, 0x9e3779b1) + Math.imul(frame, 0x85ebca6b);
		slot = (slot ^ (slot >>> 15)) & this.mask;
		for (;;) {
			const node = this.slots[slot];
			if (node < 0 || (this.parent[node] === parent && this.frame[node] === frame))
				return slot;
			slot = (slot + 1) & this.mask;
		}
	}

	grow() {
		this.capacity *= 2;
		for (const key of ["frame", "parent", "self"]) {
			const old = this[key];
			this[key] = new old.constructor(this.capacity);
			this[key].set(old);
		}
		this.mask = (this.capacity << 1) - 1;
		this.slots = new Int32Array(this.capacity << 1).fill(-1);
		for (let node = 0; node < this.length; node++)
			this.slots[this.slot(this.parent[node], this.frame[node])] = node;
	}

	child(parent, frame) {
		let slot = this.slot(parent, frame);
		if (this.slots[slot] >= 0)
			return this.slots[slot];
		if (this.length === this.capacity) {
			this.grow();
			slot = this.slot(parent, frame);
		}
		const node = this.length++;
		this.frame[node] = frame;
		this.parent[node] = parent;
		this.slots[slot] = node;
		return node;
	}
}

/* The first level below the root: nothing, programs of one name, processes or threads. */
function groupOf(profile, by, sample) {
	const process = profile.processes[sample.process] ?? { pid: 0, comm: "[unknown process]", exe: "" };
	if (by === "program")
		return [`${process.comm}\n${process.exe}`, process.comm, process.exe];
	if (by === "process")
		return [`${sample.process}`, `${process.comm} (${process.pid})`, process.exe];
	return [`${sample.process} ${sample.tid}`, `${sample.comm || process.comm} (${sample.tid})`, `${process.comm} (${process.pid})`];
}

/* by: "all", "program", "process" or "thread"; process: an index, or -1 for every process. */
export function build(profile, by, process) {
	const nodes = new Nodes();
	const groups = new Map();
	const labels = [{ name: process >= 0 ? "all of this process" : "all", module: "", kind: GROUP }];
	const base = profile.frames.length;
	nodes.child(-1, base);

	for (const sample of profile.samples) {
		if (process >= 0 && sample.process !== process)
			continue;
		let node = 0;
		if (by !== "all") {
			const [key, name, module] = groupOf(profile, by, sample);
			let label = groups.get(key);
			if (label === undefined) {
				label = base + labels.length;
				groups.set(key, label);
				labels.push({ name, module, kind: GROUP });
			}
			node = nodes.child(node, label);
		}
		for (const frame of sample.stack)
			node = nodes.child(node, frame);
		nodes.self[node] += sample.weight;
	}
	const frameOf = (id) => (id < base ? profile.frames[id] : labels[id - base]);
	return index(nodes, frameOf, base + labels.length);
}

/* Totals and child lists: node n's children are children[first[n] .. first[n + 1]). */
function index(nodes, frameOf, frameCount) {
	const { length, parent, frame: frameId, self } = nodes;
	const total = self.slice(0, length);
	const first = new Int32Array(length + 2);
	for (let node = length - 1; node > 0; node--) {
		total[parent[node]] += total[node];
		first[parent[node] + 2]++;
	}
	for (let node = 2; node < length + 2; node++)
		first[node] += first[node - 1];
	const children = new Int32Array(Math.max(0, length - 1));
	for (let node = 1; node < length; node++)
		children[first[parent[node] + 1]++] = node;
	const frame = (node) => frameOf(frameId[node]);
	return { length, parent, self, total, first, children, frame, frameId, frameOf, frameCount };
}

export function pathTo(tree, node) {
	const path = [];
	for (; node >= 0; node = tree.parent[node])
		path.push(node);
	return path.reverse();
}

/*
 * The nodes worth drawing below `focus`: those of at least `least` weight, widest first and at most
 * `limit`. A child is never wider than its parent, so every parent of a kept node is kept.
 * Returns nested { node, name, value, fade, children } from the root, and how many were left out.
 */
export function visible(tree, focus, least, limit) {
	const { first, children, total } = tree;
	let kept = [focus];
	let hidden = 0;
	for (let i = 0; i < kept.length; i++) {
		for (let c = first[kept[i]]; c < first[kept[i] + 1]; c++) {
			if (total[children[c]] >= least && total[children[c]] > 0)
				kept.push(children[c]);
			else
				hidden++;
		}
	}
	/* Breadth first gave the shallow ones first; a stable sort keeps that among equals. */
	kept.sort((a, b) => total[b] - total[a]);
	if (kept.length > limit) {
		hidden += kept.length - limit;
		kept = kept.slice(0, limit);
	}

	const made = new Map();
	const make = (node, fade) => {
		const item = { node, name: tree.frame(node).name, value: total[node], fade, children: [] };
		made.set(node, item);
		return item;
	};
	const path = pathTo(tree, focus);
	let top = null;
	let below = null;
	for (const node of path) {
		const item = make(node, node !== focus);
		item.value = total[focus];
		below?.children.push(item);
		below = item;
		top ??= item;
	}
	for (const node of kept) {
		if (node !== focus)
			made.get(tree.parent[node]).children.push(make(node, false));
	}
	return { top, hidden };
}

/* Which frame ids match; the root's own label never does. */
export function matchMask(tree, test) {
	const mask = new Uint8Array(tree.frameCount);
	for (let id = 0; id < tree.frameCount; id++)
		mask[id] = id !== tree.frameId[0] && test(tree.frameOf(id)) ? 1 : 0;
	return mask;
}

/* Weight under the topmost matching nodes, so that nothing counts twice. */
export function matchedWeight(tree, mask) {
	const covered = new Uint8Array(tree.length);
	let sum = 0;
	for (let node = 0; node < tree.length; node++) {
		if (node > 0 && covered[tree.parent[node]]) {
			covered[node] = 1;
		} else if (mask[tree.frameId[node]]) {
			covered[node] = 1;
			sum += tree.total[node];
		}
	}
	return sum;
}
