// SPDX-License-Identifier: Apache-2.0
//
// Makes profiles for the page's tests: `small` with known sums and hostile names, `large` for speed,
// `deep` for one very deep stack, `empty`. Also writes one to a file: node sample.mjs small > x.json

export const HOSTILE = [
	"</script><img src=x onerror=alert(1)>",
	"<svg onload=alert(2)>",
	"\" onmouseover=\"alert(3)",
	"--><script>alert(4)</script>",
	"javascript:alert(5)",
	"name\u202egpj.exe\u0000\u0007",
	"@FLYBALL_DATA@ $& $1 ${alert(6)}",
	"__proto__",
];

/* As the C writer does, so that no name can end the script element. */
export function escapeJson(value) {
	return JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export class Builder {
	constructor(head = {}) {
		this.strings = [""];
		this.ids = new Map([["", 0]]);
		this.frameIds = new Map();
		this.profile = {
			version: 1, title: "flyball record -a -d 10s", kind: "on_cpu", unit: "nanoseconds",
			time_unix_nano: "1700000000000000000", duration_ns: 10e9, cpus: 2, hz: 99,
			ledger: { taken: 0, delivered: 0, dropped: {}, weight_ns: 0, missed_by_kernel: 0 },
			cost: { own_user_ns: null, own_system_ns: null, bpf_run_ns: null },
			reasons: {}, strings: this.strings, frames: [], processes: [], samples: [], ...head,
		};
	}

	string(text) {
		if (!this.ids.has(text)) {
			this.ids.set(text, this.strings.length);
			this.strings.push(text);
		}
		return this.ids.get(text);
	}

	frame(name, module = "", kind = 0) {
		const key = `${name}\n${module}\n${kind}`;
		if (!this.frameIds.has(key)) {
			this.frameIds.set(key, this.profile.frames.length);
			this.profile.frames.push([this.string(name), this.string(module), kind]);
		}
		return this.frameIds.get(key);
	}

	process(pid, comm, exe = "", container = "") {
		return this.profile.processes.push([pid, this.string(comm), this.string(exe), this.string(container)]) - 1;
	}

	sample(process, tid, comm, stack, count, flags = "") {
		const weight = count * 10101010;
		this.profile.samples.push([process, tid, this.string(comm), stack, weight, count, this.string(flags)]);
		this.profile.ledger.taken += count;
		this.profile.ledger.delivered += count;
		this.profile.ledger.weight_ns += weight;
	}
}

const KERNEL = "[kernel]";

export function small() {
	const b = new Builder();
	const user = (module) => (...names) => names.map((name) => b.frame(name, module, 0));
	const kernel = (...names) => names.map((name) => b.frame(name, KERNEL, 1));
	const libc = user("libc.so.6")("__libc_start_main");
	const db = b.process(4120, "postgres", "/usr/lib/postgresql/15/bin/postgres", "db-7f9c");
	const pg = user("postgres");
	const pgBase = [...libc, ...pg("main", "PostmasterMain", "ServerLoop", "BackendRun", "PostgresMain", "exec_simple_query")];
	b.sample(db, 4120, "postgres", [...pgBase, ...pg("PortalRun", "ExecutorRun", "ExecSeqScan", "heap_getnextslot")], 210);
	b.sample(db, 4120, "postgres", [...pgBase, ...pg("PortalRun", "ExecutorRun", "ExecHashJoin", "ExecScanHashBucket"), b.frame("hash_bytes", "postgres", 2)], 130);
	b.sample(db, 4120, "postgres", [...pgBase, ...pg("pg_parse_query", "base_yyparse")], 45);
	b.sample(db, 4120, "postgres", [...pgBase, ...pg("PortalRun", "smgrread"), ...user("libc.so.6")("__libc_pread64"),
		...kernel("entry_SYSCALL_64", "do_syscall_64", "__x64_sys_pread64", "vfs_read", "ext4_file_read_iter", "filemap_read", "copy_page_to_iter")], 160);
	b.sample(db, 4133, "bgwriter", [...libc, ...pg("main", "PostmasterMain", "BackgroundWriterMain", "BgBufferSync")], 30);

	const node = b.process(5200, "node", "/usr/bin/node", "web-1b2d");
	const v8 = user("node");
	const nodeBase = [...libc, ...v8("main", "node::Start(int, char**)", "node::SpinEventLoopInternal(node::Environment*)", "uv_run")];
	const jit = (...names) => names.map((name) => b.frame(name, "[jit]", 3));
	b.sample(node, 5200, "node", [...nodeBase, ...v8("uv__io_poll", "node::InternalMakeCallback"), ...jit("processTicksAndRejections", "handleRequest /app/server.js:41", "renderTemplate /app/view.js:12")], 240);
	b.sample(node, 5200, "node", [...nodeBase, ...v8("uv__io_poll", "node::InternalMakeCallback"), ...jit("processTicksAndRejections", "handleRequest /app/server.js:41", "JSON.stringify")], 95);
	b.sample(node, 5200, "node", [...nodeBase, ...v8("uv__io_poll"), ...user("libc.so.6")("epoll_pwait"), ...kernel("entry_SYSCALL_64", "do_syscall_64", "__x64_sys_epoll_pwait", "do_epoll_wait")], 40);
	b.sample(node, 5204, "V8Worker", [...user("libc.so.6")("clone3", "start_thread"), ...v8("v8::internal::Scavenger::Process(v8::JobDelegate*)")], 85);

	/* recursion, and a stack that was cut */
	const fib = b.frame("fib", "fib", 0);
	const burn = b.process(6001, "fib");
	b.sample(burn, 6001, "fib", [b.frame("_start", "fib"), b.frame("main", "fib"), ...Array(24).fill(fib)], 60);
	b.sample(burn, 6001, "fib", [b.frame("[truncated: depth 127]", "", 4), ...Array(127).fill(fib)], 25, "depth_limit");

	const evil = b.process(6666, "</title><b>x");
	HOSTILE.forEach((name, i) => b.sample(evil, 6666 + i, HOSTILE[0], [b.frame("main", "evil"), b.frame(name, HOSTILE[1])], 5 + i));
	b.sample(evil, 6666, HOSTILE[0], [], 3);

	b.profile.ledger.taken += 14;
	b.profile.ledger.dropped = { ring_full: 12, stack_busy: 2, unused: 0 };
	b.profile.ledger.missed_by_kernel = 7;
	b.profile.cost = { own_user_ns: 31e6, own_system_ns: 24e6, bpf_run_ns: null };
	b.profile.reasons = {
		ring_full: "The ring buffer was full, because user space did not read fast enough; raise --ring.",
		stack_busy: "Another sample was being taken on the same CPU.",
		depth_limit: "The stack was deeper than the depth in force; the outermost frames are missing.",
		unused: "Never shown: nothing was dropped for this.",
	};
	return b.profile;
}

function random(seed) {
	let state = seed;
	return () => {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		return state / 2 ** 32;
	};
}

/* 200 000 rows over 20 000 frames, 15 to 60 deep, like a busy node. */
export function large(rows = 200000) {
	const b = new Builder({ title: "flyball record -a (large)", duration_ns: 600e9, cpus: 64 });
	const next = random(7);
	const frames = Array.from({ length: 20000 }, (_, i) =>
		b.frame(`service::module_${i % 97}::function_${i}(int, char const*)`, `lib${i % 300}.so`, i % 7 === 0 ? 1 : 0));
	const processes = Array.from({ length: 120 }, (_, i) => b.process(1000 + i, `service-${i}`));
	for (let i = 0; i < rows; i++) {
		const process = Math.floor(next() ** 2 * processes.length);
		const depth = 15 + Math.floor(next() * 45);
		let at = process * 131;
		const stack = [];
		for (let d = 0; d < depth; d++) {
			at = (at * 3 + Math.floor(next() ** 5 * 5) + d) % frames.length;
			stack.push(frames[at]);
		}
		b.sample(process, 1000 + process + (i % 4) * 10000, `worker-${i % 4}`, stack, 1 + Math.floor(next() * 5));
	}
	return b.profile;
}

/* 40 stacks of 1 000 frames with a shared half. */
export function deep() {
	const b = new Builder({ title: "flyball record (deep)" });
	const process = b.process(1, "deep");
	for (let i = 0; i < 40; i++) {
		const stack = Array.from({ length: 1000 }, (_, d) => b.frame(d < 500 ? `shared_${d}` : `branch_${i}_${d}`, "deep", 0));
		b.sample(process, 1, "deep", stack, 1);
	}
	return b.profile;
}

export function empty() {
	return new Builder({ title: "flyball record -p 1 -d 1s", duration_ns: 1e9 }).profile;
}

if (process.argv[1]?.endsWith("sample.mjs"))
	process.stdout.write(escapeJson({ small, large, deep, empty }[process.argv[2] ?? "small"]()));
