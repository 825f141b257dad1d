// SPDX-License-Identifier: Apache-2.0
//
// Wires the page: one `state`, and `refresh` to draw what it says.
import { swatch } from "./colours.js";
import { Flame } from "./flame.js";
import { h, integer, percent, unitOf } from "./format.js";
import { KINDS, decode, functions, matcher, processWeights } from "./profile.js";
import "./style.css";
import { renderNotes, renderSummary } from "./summary.js";
import { initTheme } from "./theme.js";
import { Top } from "./top.js";
import { build, matchMask, matchedWeight, pathTo } from "./tree.js";

const MANY_PROCESSES = 40;

const $ = (id) => document.getElementById(id);

function showEmpty(sentence) {
	document.body.classList.add("empty");
	$("empty").textContent = sentence;
	$("empty").hidden = false;
}

function showTitle(profile) {
	$("title").textContent = profile.title || "flyball";
	document.title = profile.title ? `${profile.title} – flyball` : "flyball";
	if (profile.start)
		$("when").textContent = profile.start.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/* Many short-lived processes, each a sliver, show nothing: those of one program belong together. */
function rootFor(processCount) {
	if (processCount > MANY_PROCESSES)
		return "program";
	return processCount > 1 ? "process" : "all";
}

class Page {
	constructor(profile, theme) {
		this.profile = profile;
		this.unit = unitOf(profile);
		this.theme = theme;
		this.state = { root: rootFor(profile.processes.length), process: -1, focus: 0, tab: "flame" };
		this.mask = null; // frame ids the search matched
		this.pending = 0; // search to come, once typing pauses
		this.flame = new Flame($("flame"), {
			hover: (node, event) => this.hover(node, event),
			focus: (node) => {
				this.hover(-1, null);
				this.describe(node);
			},
			zoom: (node) => this.zoom(node),
		});
		this.top = new Top($("panel-top"), profile, this.unit, (frame) => {
			$("search").value = frame.name;
			this.search();
			this.showTab("flame");
		});
		this.fillProcesses();
		this.listen();
		this.rebuild();
	}

	fillProcesses() {
		const weights = processWeights(this.profile);
		const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
		$("process").append(h("option", { value: "-1" }, `all (${integer(order.length)})`), ...order.map((i) => {
			const { comm, pid, container } = this.profile.processes[i];
			const where = container ? ` in ${container}` : "";
			return h("option", { value: String(i) }, `${percent(weights[i], this.profile.total)}  ${comm} (${pid})${where}`);
		}));
		$("root").value = this.state.root;
	}

	listen() {
		$("root").addEventListener("change", (event) => {
			this.state.root = event.target.value;
			this.rebuild();
		});
		$("process").addEventListener("change", (event) => {
			this.state.process = Number(event.target.value);
			this.rebuild();
		});
		$("search").addEventListener("input", () => {
			clearTimeout(this.pending);
			this.pending = setTimeout(() => this.search(), 80);
		});
		$("reset").addEventListener("click", () => this.zoom(0));
		const tabs = [$("tab-flame"), $("tab-top")];
		for (const tab of tabs) {
			tab.addEventListener("click", () => this.showTab(tab.id.slice(4)));
			tab.addEventListener("keydown", (event) => {
				if (event.key !== "ArrowLeft" && event.key !== "ArrowRight")
					return;
				const other = tabs.find((one) => one !== tab);
				this.showTab(other.id.slice(4));
				other.focus();
			});
		}
		document.addEventListener("keydown", (event) => this.key(event));
		this.theme.onChange(() => {
			this.flame.recolour(this.mask, this.theme.dark());
			this.renderLegend();
		});
		let width = $("flame").clientWidth;
		new ResizeObserver(() => {
			if ($("flame").clientWidth === width || this.state.tab !== "flame")
				return;
			width = $("flame").clientWidth;
			requestAnimationFrame(() => this.draw());
		}).observe($("flame"));
	}

	key(event) {
		if (event.ctrlKey || event.metaKey || event.altKey || $("help").open)
			return;
		const typing = event.target.closest("input, select, textarea");
		if (event.key === "Escape") {
			if ($("search").value) {
				$("search").value = "";
				this.search();
			} else if (this.state.focus) {
				this.zoom(0);
			}
			if (typing)
				event.target.blur();
		} else if (typing) {
			return;
		} else if (event.key === "/") {
			$("search").focus();
			$("search").select();
		} else if (event.key.startsWith("Arrow") && this.state.tab === "flame" && !event.target.closest("[role=tab]")) {
			if (document.activeElement === $("flame"))
				this.flame.move(event.key);
			else
				$("flame").focus({ preventScroll: true });
		} else {
			return;
		}
		event.preventDefault();
	}

	/* After another root or process was chosen. */
	rebuild() {
		const { root, process } = this.state;
		this.tree = build(this.profile, root, process);
		this.weights = functions(this.profile, process);
		this.state.focus = 0;
		this.flame.current = 0;
		this.renderLegend();
		this.match();
		this.draw();
	}

	/* After the search's text changed: the same frames in other colours, or another table. */
	search() {
		this.match();
		if (this.state.tab === "flame")
			this.flame.recolour(this.mask, this.theme.dark());
		else
			this.draw();
	}

	match() {
		clearTimeout(this.pending);
		const query = $("search").value;
		this.mask = null;
		$("match").textContent = "";
		$("search").removeAttribute("aria-invalid");
		if (!query)
			return;
		try {
			this.mask = matchMask(this.tree, matcher(query));
		} catch {
			$("search").setAttribute("aria-invalid", "true");
			$("match").textContent = "not a valid regular expression";
			return;
		}
		const sum = matchedWeight(this.tree, this.mask);
		$("match").textContent = `${percent(sum, this.tree.total[0])} matched, ${this.unit.write(sum)}`;
	}

	draw() {
		const { tab, focus, process } = this.state;
		if (tab === "flame") {
			this.hidden = this.flame.draw(this.tree, focus, this.mask, this.theme.dark());
			this.renderCrumbs();
			this.describe(this.flame.current);
		} else {
			const { comm, pid } = this.profile.processes[process] ?? {};
			this.top.update(this.weights, this.mask, process >= 0 ? `of ${comm} (${pid})` : "of all processes");
		}
	}

	zoom(node) {
		this.state.focus = node;
		this.flame.current = node;
		this.draw();
		this.flame.showFocus();
	}

	showTab(name) {
		this.state.tab = name;
		for (const tab of ["flame", "top"]) {
			const on = tab === name;
			$(`tab-${tab}`).setAttribute("aria-selected", String(on));
			$(`tab-${tab}`).tabIndex = on ? 0 : -1;
			$(`panel-${tab}`).hidden = !on;
		}
		document.body.dataset.tab = name;
		this.hover(-1, null);
		this.draw();
	}

	/* The zoom path; a long one keeps its ends. */
	renderCrumbs() {
		const path = pathTo(this.tree, this.state.focus);
		const gap = path.length > 9 ? path.length - 8 : 0;
		const items = path.map((node) => h("li", {}, h("button", {
			type: "button", onclick: () => this.zoom(node), title: this.tree.frame(node).name,
		}, this.tree.frame(node).name)));
		items[items.length - 1].firstChild.setAttribute("aria-current", "location");
		if (gap)
			items.splice(3, gap, h("li", { className: "gap" }, `… ${integer(gap)} more …`));
		$("crumbs").replaceChildren(...items);
		$("reset").disabled = this.state.focus === 0;
	}

	renderLegend() {
		const { self, total, sum } = this.weights;
		const shares = new Float64Array(KINDS.length);
		const present = new Set();
		this.profile.frames.forEach(({ kind }, i) => {
			shares[kind] += self[i];
			if (total[i] > 0)
				present.add(kind);
		});
		$("legend").replaceChildren(...[...present].sort().map((kind) => {
			const box = h("span", { className: "swatch" });
			box.style.backgroundColor = swatch(kind, this.theme.dark());
			return h("li", {}, box, `${KINDS[kind]} `, h("span", { className: "note" }, percent(shares[kind], sum)));
		}));
	}

	facts(node) {
		const { tree, profile, unit, state } = this;
		const frame = tree.frame(node);
		const total = tree.total[node];
		const shares = [`${percent(total, profile.total)} of all`];
		if (tree.total[0] !== profile.total)
			shares.push(`${percent(total, tree.total[0])} of this process`);
		if (state.focus)
			shares.push(`${percent(total, tree.total[state.focus])} of the zoom`);
		const cpus = profile.kind === "on_cpu" && unit.isTime && profile.duration
			? `${(total / profile.duration).toPrecision(2)} CPUs on average` : "";
		return {
			name: frame.name,
			where: [frame.module, frame.kind < KINDS.length - 1 ? KINDS[frame.kind] : ""].filter(Boolean).join(" · "),
			total: `total ${unit.write(total)}, ${shares.join(", ")}`,
			self: `self ${unit.write(tree.self[node])}, ${percent(tree.self[node], profile.total)}`,
			cpus,
		};
	}

	describe(node) {
		const { name, where, total, self, cpus } = this.facts(node);
		const hidden = this.hidden ? `${integer(this.hidden)} narrower branches not drawn` : "";
		$("details").replaceChildren(h("b", {}, name), ...[where, total, self, cpus].filter(Boolean).map((text) => h("span", {}, text)),
			...(hidden ? [h("span", { className: "hidden-note" }, hidden)] : []));
	}

	hover(node, event) {
		const tip = $("tip");
		tip.hidden = node < 0;
		if (node < 0)
			return;
		const { name, where, total, self, cpus } = this.facts(node);
		tip.replaceChildren(h("b", {}, name), ...[where, total, self, cpus].filter(Boolean).map((text) => h("div", {}, text)));
		const { offsetWidth, offsetHeight } = tip;
		const left = Math.min(event.clientX + 14, window.innerWidth - offsetWidth - 8);
		const below = event.clientY + 18;
		tip.style.left = `${Math.max(8, left)}px`;
		tip.style.top = `${below + offsetHeight > window.innerHeight ? event.clientY - offsetHeight - 12 : below}px`;
	}
}

function listenForHelp() {
	const open = () => $("help").showModal();
	$("help-open").addEventListener("click", open);
	$("help-close").addEventListener("click", () => $("help").close());
	document.addEventListener("keydown", (event) => {
		if (event.key === "?" && !event.target.closest("input, select, textarea") && !$("help").open) {
			event.preventDefault();
			open();
		}
	});
}

function main() {
	const theme = initTheme($("theme"));
	listenForHelp();
	let profile;
	try {
		profile = decode($("flyball-data").textContent);
	} catch (error) {
		return showEmpty(error.message);
	}
	showTitle(profile);
	renderSummary($("summary"), profile, unitOf(profile));
	renderNotes($("notes"), profile, unitOf(profile));
	if (profile.samples.length)
		return new Page(profile, theme);
	if (profile.ledger.taken > 0)
		showEmpty("No sample was delivered: all that were taken were dropped, for the reasons above.");
	else if (profile.kind === "off_cpu")
		showEmpty("No samples: nothing that was watched waited in this time. Record for longer with -d, or all processes with -a.");
	else
		showEmpty("No samples: nothing that was watched ran on a CPU in this time. Record for longer with -d, at a higher rate with -F, or all processes with -a.");
}

main();
