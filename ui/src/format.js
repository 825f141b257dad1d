// SPDX-License-Identifier: Apache-2.0
//
// Numbers and elements. `h` is the only way this page makes elements, and it only makes text.

export function h(tag, properties = {}, ...children) {
	const element = document.createElement(tag);
	for (const [key, value] of Object.entries(properties)) {
		if (key.includes("-") || key === "role" || key === "for")
			element.setAttribute(key, value);
		else
			element[key] = value;
	}
	element.append(...children);
	return element;
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function integer(value) {
	return grouped.format(value);
}

function significant(value) {
	return value >= 100 ? grouped.format(value) : value.toPrecision(3);
}

export function time(ns) {
	if (ns === 0)
		return "0 s";
	if (ns >= 0.9995e9)
		return `${significant(ns / 1e9)} s`;
	if (ns >= 0.9995e6)
		return `${significant(ns / 1e6)} ms`;
	return ns >= 999.5 ? `${significant(ns / 1e3)} µs` : `${Math.round(ns)} ns`;
}

export function percent(part, whole) {
	if (!(whole > 0))
		return "–";
	const value = (100 * part) / whole;
	if (value === 0 || value === 100)
		return `${value} %`;
	if (value < 0.01)
		return "<0.01 %";
	return `${value >= 99.995 ? ">99.99" : value.toFixed(value < 1 ? 2 : 1)} %`;
}

/* What the weights of this profile are called and how one is written. */
export function unitOf(profile) {
	const isTime = profile.unit === "nanoseconds";
	const noun = { on_cpu: "CPU time", off_cpu: "Off-CPU time" }[profile.kind] ?? (isTime ? "Time" : profile.unit || "Weight");
	const suffix = isTime && profile.kind === "on_cpu" ? " CPU" : "";
	return { isTime, noun, write: (weight) => (isTime ? time(weight) : integer(weight)) + suffix };
}
