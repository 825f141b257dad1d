// SPDX-License-Identifier: Apache-2.0
//
// The strip above the graph: what was recorded, what was lost and why, what it cost.
import { h, integer, percent, time } from "./format.js";
import { flagged } from "./profile.js";

function cell(label, value, note, alert) {
	return h("div", { className: alert ? "cell alert" : "cell" },
		h("span", { className: "label" }, label),
		h("span", { className: "value" }, value),
		...(note ? [h("span", { className: "note" }, note)] : []));
}

function costCell(profile, capacity) {
	const parts = [["user", profile.cost.user], ["system", profile.cost.system], ["BPF", profile.cost.bpf]];
	const known = parts.filter(([, ns]) => ns !== null);
	if (!known.length)
		return cell("Own cost", "not measured");
	const sum = known.reduce((total, [, ns]) => total + ns, 0);
	const words = parts.map(([name, ns]) => (ns === null ? `${name} not measured` : `${time(ns)} ${name}`));
	return cell("Own cost", capacity > 0 ? percent(sum, capacity) : time(sum), words.join(", "));
}

export function renderSummary(element, profile, unit) {
	const { ledger, duration, cpus } = profile;
	const capacity = duration * cpus;
	const cells = [];
	if (duration)
		cells.push(cell("Duration", time(duration)));
	if (cpus)
		cells.push(cell("CPUs", integer(cpus)));
	if (profile.hz)
		cells.push(cell("Rate", `${integer(profile.hz)} Hz`));
	cells.push(cell(unit.noun, unit.isTime ? time(profile.total) : integer(profile.total),
		profile.kind === "on_cpu" && capacity > 0 ? `${percent(profile.total, capacity)} of capacity` : ""));
	cells.push(cell("Samples taken", integer(ledger.taken)));
	cells.push(cell("Delivered", integer(ledger.delivered), ledger.taken ? percent(ledger.delivered, ledger.taken) : ""));
	cells.push(cell("Dropped", integer(ledger.droppedTotal), ledger.droppedTotal ? percent(ledger.droppedTotal, ledger.taken) : "",
		ledger.droppedTotal > 0));
	cells.push(cell("Missed by kernel", ledger.missed === null ? "not known" : `≈ ${integer(ledger.missed)}`,
		ledger.missed && ledger.taken ? `≈ ${percent(ledger.missed, ledger.missed + ledger.taken)}` : ""));
	cells.push(costCell(profile, capacity));
	element.replaceChildren(...cells);
}

/* One line for each reason something is missing or not whole. */
export function renderNotes(element, profile, unit) {
	const { ledger, reasons } = profile;
	const lines = [];
	const line = (label, reason, figure) => lines.push(h("li", {},
		h("b", {}, label), " ", h("code", {}, reason), ` ${figure} `,
		h("span", { className: "reason" }, reasons.get(reason) ?? "")));

	const difference = ledger.taken - ledger.delivered - ledger.droppedTotal;
	if (difference !== 0) {
		lines.push(h("li", {}, h("b", {}, "Ledger"),
			` does not balance: taken − delivered − dropped = ${integer(difference)}`));
	}
	for (const [reason, n] of ledger.dropped.filter(([, n]) => n > 0))
		line("Dropped", reason, `${integer(n)} samples (${percent(n, ledger.taken)})`);
	for (const [flag, n, weight] of flagged(profile))
		line("Degraded", flag, `${integer(n)} samples, ${unit.write(weight)} (${percent(weight, profile.total)})`);
	element.hidden = lines.length === 0;
	if (!lines.length)
		return;
	element.replaceChildren(h("details", { open: lines.length <= 3 && innerWidth > 640 },
		h("summary", {}, lines.length === 1 ? "1 note on completeness" : `${lines.length} notes on completeness`),
		h("ul", {}, ...lines)));
}
