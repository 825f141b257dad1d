// SPDX-License-Identifier: Apache-2.0
//
// The profile inside the page: decoding, and the questions that need no tree.
// Every string comes from programs nobody vouches for. `clean` makes what cannot be seen visible;
// the rest of the page only ever hands strings to textContent.

export const KINDS = ["user", "kernel", "inlined", "jit", "pseudo", "group"];
export const GROUP = 5;

const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/* Control, zero-width and direction-changing characters as \uXXXX, so no name can pose as another. */
export function clean(text) {
	return String(text).replace(INVISIBLE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const count = (value) => (Number.isFinite(value) && value >= 0 ? value : 0);
const countOrNull = (value) => (Number.isFinite(value) ? value : null);
const list = (value) => (Array.isArray(value) ? value : []);

function entries(object) {
	return object && typeof object === "object" ? Object.entries(object) : [];
}

export function decode(text) {
	let raw;
	try {
		raw = JSON.parse(text);
	} catch {
		throw new Error("This page holds no readable profile: it was cut short, or is the bare template.");
	}
	if (raw?.version !== 1)
		throw new Error(`This page cannot read profile version ${clean(raw?.version)}; it reads version 1.`);

	const strings = list(raw.strings).map(clean);
	const string = (index) => strings[index] ?? "";
	const frames = [];
	const ids = new Map();
	const frameId = (name, module, kind) => {
		const key = `${kind}\n${name}\n${module}`;
		let id = ids.get(key);
		if (id === undefined) {
			id = frames.length;
			ids.set(key, id);
			frames.push({ name, module, kind });
		}
		return id;
	};
	/* Two entries with the same name, module and kind are one function to the reader. */
	const canonical = list(raw.frames).map(([name, module, kind]) =>
		frameId(string(name) || "[no name]", string(module), kind >= 0 && kind < GROUP ? kind : 4));
	const processes = list(raw.processes).map(([pid, comm, exe, container]) => ({
		pid: count(pid), comm: string(comm), exe: string(exe), container: string(container),
	}));
	const samples = list(raw.samples).map(([process, tid, comm, stack, weight, n, flags]) => ({
		process,
		tid: count(tid),
		comm: string(comm),
		stack: list(stack).map((frame) => canonical[frame] ?? frameId("[unknown frame]", "", 4)),
		weight: count(weight),
		count: count(n),
		flags: string(flags),
	}));

	const dropped = entries(raw.ledger?.dropped).map(([reason, n]) => [clean(reason), count(n)]);
	return {
		title: clean(raw.title ?? ""),
		kind: clean(raw.kind ?? ""),
		unit: clean(raw.unit ?? ""),
		start: /^\d{1,20}$/.test(raw.time_unix_nano) ? new Date(Number(BigInt(raw.time_unix_nano) / 1000000n)) : null,
		duration: count(raw.duration_ns),
		cpus: count(raw.cpus),
		hz: count(raw.hz),
		ledger: {
			taken: count(raw.ledger?.taken),
			delivered: count(raw.ledger?.delivered),
			dropped,
			droppedTotal: dropped.reduce((sum, [, n]) => sum + n, 0),
			missed: countOrNull(raw.ledger?.missed_by_kernel),
		},
		cost: {
			user: countOrNull(raw.cost?.own_user_ns),
			system: countOrNull(raw.cost?.own_system_ns),
			bpf: countOrNull(raw.cost?.bpf_run_ns),
		},
		reasons: new Map(entries(raw.reasons).map(([reason, sentence]) => [clean(reason), clean(sentence)])),
		frames,
		processes,
		samples,
		total: samples.reduce((sum, sample) => sum + sample.weight, 0),
	};
}

/* Samples delivered with a flag (a truncated stack, say), by flag: [flag, count, weight]. */
export function flagged(profile) {
	const flags = new Map();
	for (const sample of profile.samples) {
		for (const flag of sample.flags.split(/[\s,;|]+/).filter(Boolean)) {
			const row = flags.get(flag) ?? [flag, 0, 0];
			row[1] += sample.count;
			row[2] += sample.weight;
			flags.set(flag, row);
		}
	}
	return [...flags.values()].sort((a, b) => b[2] - a[2]);
}

/* Weight per process index. */
export function processWeights(profile) {
	const weights = new Float64Array(profile.processes.length);
	for (const { process, weight } of profile.samples)
		weights[process] += weight;
	return weights;
}

/* Self and total weight of every function. A function that recurs in a stack counts once in total. */
export function functions(profile, process) {
	const self = new Float64Array(profile.frames.length);
	const total = new Float64Array(profile.frames.length);
	const seen = new Int32Array(profile.frames.length).fill(-1);
	let sum = 0;
	profile.samples.forEach((sample, i) => {
		if (process >= 0 && sample.process !== process)
			return;
		sum += sample.weight;
		for (const frame of sample.stack) {
			if (seen[frame] !== i) {
				seen[frame] = i;
				total[frame] += sample.weight;
			}
		}
		if (sample.stack.length)
			self[sample.stack[sample.stack.length - 1]] += sample.weight;
	});
	return { self, total, sum };
}

/* A search box's text as a test of names: /regex/ or plain text in any case. Throws on a bad regex. */
export function matcher(query) {
	const regex = /^\/(.+)\/([imsu]*)$/.exec(query) ?? /^\/(.+)$/.exec(query);
	if (regex) {
		const compiled = new RegExp(regex[1], regex[2] ?? "");
		return ({ name, module }) => compiled.test(name) || (module !== "" && compiled.test(module));
	}
	const needle = query.toLowerCase();
	return ({ name, module }) => name.toLowerCase().includes(needle) || module.toLowerCase().includes(needle);
}
