// SPDX-License-Identifier: Apache-2.0
//
// Theme: automatic (the system's), light or dark. Remembered where the browser allows it.

const KEY = "flyball-theme";
const CHOICES = ["auto", "light", "dark"];
const LABELS = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };

function stored() {
	try {
		return localStorage.getItem(KEY);
	} catch {
		return null; // storage is off, or refused to a file
	}
}

function store(choice) {
	try {
		localStorage.setItem(KEY, choice);
	} catch {
		/* then it lasts as long as the page */
	}
}

export function initTheme(button) {
	const system = matchMedia("(prefers-color-scheme: dark)");
	const listeners = [];
	let choice = CHOICES.includes(stored()) ? stored() : "auto";
	const dark = () => (choice === "auto" ? system.matches : choice === "dark");
	const apply = () => {
		document.documentElement.dataset.theme = dark() ? "dark" : "light";
		button.textContent = LABELS[choice];
		listeners.forEach((listener) => listener());
	};
	const cycle = () => {
		choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
		store(choice);
		apply();
	};
	button.addEventListener("click", cycle);
	system.addEventListener("change", apply);
	document.addEventListener("keydown", (event) => {
		if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, select, textarea"))
			cycle();
	});
	apply();
	return { dark, onChange: (listener) => listeners.push(listener) };
}
