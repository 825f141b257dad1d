// SPDX-License-Identifier: Apache-2.0
//
// One hue per kind of frame; the name shifts it a little so that neighbours stay apart.
import { KINDS } from "./profile.js";

const PALETTE = {
	/* kind: [hue, spread, saturation, lightness light, lightness dark] */
	user: [34, 9, 78, 74, 33],
	kernel: [212, 9, 58, 78, 36],
	inlined: [178, 6, 44, 78, 29],
	jit: [100, 8, 42, 75, 29],
	pseudo: [330, 0, 8, 80, 30],
	group: [220, 0, 12, 86, 25],
};

function hash(text) {
	let value = 0x811c9dc5;
	for (let i = 0; i < text.length && i < 64; i++)
		value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
	return ((value >>> 8) & 0xffff) / 0x8000 - 1;
}

/* state: "match" is what a search found, "dim" what it did not, "" no search. */
export function colour(frame, dark, state) {
	if (state === "match")
		return dark ? "hsl(292 48% 44%)" : "hsl(292 72% 79%)";
	const [hue, spread, saturation, light, night] = PALETTE[KINDS[frame.kind]];
	const shift = hash(frame.name);
	const lightness = (dark ? night : light) + 4 * hash(`${frame.name}.`) * (spread ? 1 : 0);
	if (state === "dim")
		return `hsl(${hue} ${saturation / 3}% ${dark ? lightness * 0.62 : 92}%)`;
	return `hsl(${(hue + spread * shift).toFixed(1)} ${dark ? saturation * 0.62 : saturation}% ${lightness.toFixed(1)}%)`;
}

export function swatch(kind, dark) {
	const [hue, , saturation, light, night] = PALETTE[KINDS[kind]];
	return `hsl(${hue} ${dark ? saturation * 0.62 : saturation}% ${dark ? night : light}%)`;
}
