// SPDX-License-Identifier: Apache-2.0
#include "profile_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const fixture_names[FIXTURE_KINDS] = {
	"empty", "kernel", "jit", "split", "hostile", "large", "inlined",
};

struct builder {
	struct profile *p;
	uint64_t now_ns;
	int err; /* the first one; nothing is added past it */
};

static uint32_t keep(struct builder *b, int64_t id)
{
	if (id < 0 && !b->err)
		b->err = (int)id;
	return id < 0 ? 0 : (uint32_t)id;
}

static uint32_t process(struct builder *b, uint32_t pid, const char *comm, const char *exe)
{
	struct profile_process process = {
		.pid = pid, .start_ns = 1000 + pid, .comm = comm, .exe = exe};

	if (pid % 2)
		process.container =
			"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	process.cgroup = "/system.slice/a b;c.service";
	return keep(b, profile_process_add(b->p, &process));
}

/* A file with two executable segments whose addresses are not their offsets. */
static uint32_t elf_file(struct builder *b, uint64_t key, const char *path)
{
	struct profile_file file = {
		.key = key, .path = path, .build_id_len = 20, .has_htlhash = 1, .segment_count = 2};

	memset(file.build_id, (int)key, sizeof(file.build_id));
	memset(file.htlhash, (int)key + 1, sizeof(file.htlhash));
	file.segments[0].offset = 0x6a0;
	file.segments[0].vaddr = 0x16a0;
	file.segments[0].file_bytes = 0x4000;
	file.segments[1].offset = 0x8000;
	file.segments[1].vaddr = 0x10008000;
	file.segments[1].file_bytes = 0x1000;
	return keep(b, profile_file_add(b->p, &file));
}

static uint32_t plain_file(struct builder *b, uint64_t key, const char *path)
{
	struct profile_file file = {.key = key, .path = path};

	return keep(b, profile_file_add(b->p, &file));
}

static uint32_t frame(struct builder *b, uint32_t file, uint64_t address,
		      enum profile_frame_kind kind, const char *name, enum fly_unnamed reason)
{
	uint32_t id = keep(b, profile_location_add(b->p, file, address, kind));

	if (b->err)
		return 0;
	if (name)
		profile_location_name(b->p, id, name, address);
	else if (reason)
		profile_location_unnamed(b->p, id, reason);
	return id;
}

static void sample(struct builder *b, uint32_t in_process, uint32_t tid, const char *comm,
		   uint32_t cut, size_t count, const uint32_t *frames)
{
	struct profile_sample s = {.process = in_process,
				   .tid = tid,
				   .comm = comm,
				   .time_ns = b->now_ns,
				   .weight_ns = FIXTURE_PERIOD_NS,
				   .cut = cut,
				   .depth_limit = 127,
				   .location_count = count,
				   .locations = frames};

	b->now_ns += FIXTURE_PERIOD_NS;
	if (cut & 1U << FLY_CUT_RING_PRESSURE)
		s.depth_limit = 32;
	if (!b->err)
		b->err = profile_sample_add(b->p, &s);
}

static void fill_kernel(struct builder *b)
{
	uint32_t kernel = plain_file(b, 1, "[kernel.kallsyms]");
	uint32_t kworker = process(b, 17, "kworker/0:1", "");
	uint32_t frames[] = {
		frame(b, kernel, 0xffffffff81000010, PROFILE_KERNEL, "memset_erms", 0),
		frame(b, kernel, 0xffffffff81000100, PROFILE_KERNEL, "process_one_work", 0),
		frame(b, kernel, 0xffffffff81000200, PROFILE_KERNEL, NULL,
		      FLY_UNNAMED_KERNEL_HIDDEN),
	};

	for (int i = 0; i < 10; i++)
		sample(b, kworker, 17, "kworker/0:1", 0, (size_t)(i % 4), frames);
}

static void fill_jit(struct builder *b)
{
	uint32_t anon = plain_file(b, 2, "//anon");
	uint32_t java = process(b, 300, "java", "/usr/lib/jvm/bin/java");
	uint32_t frames[] = {
		frame(b, anon, 0x7f0000001234, PROFILE_JIT, NULL, FLY_UNNAMED_ANONYMOUS),
		frame(b, anon, 0x7f0000002345, PROFILE_JIT, "LMain;::run", 0),
	};

	for (int i = 0; i < 5; i++)
		sample(b, java, 301, "C2 CompilerThre", 0, 2, frames);
}

/* 60/30/10 over two threads, with recursion. */
static void fill_split(struct builder *b)
{
	uint32_t file = elf_file(b, 3, "/usr/bin/split"), libc = elf_file(b, 4, "/lib/libc.so.6");
	uint32_t split = process(b, 42, "split", "/usr/bin/split");
	uint32_t start = frame(b, libc, 0x700, PROFILE_USER, "__libc_start_main", 0);
	uint32_t main_frame = frame(b, file, 0x710, PROFILE_USER, "main", 0);
	uint32_t again = frame(b, file, 0x718, PROFILE_USER, "main", 0);
	const char *const names[] = {"work_a", "work_b", "work_c"};
	uint32_t leaves[3];

	for (size_t i = 0; i < 3; i++)
		leaves[i] = frame(b, file, 0x800 + 0x100 * i, PROFILE_USER, names[i], 0);
	for (int i = 0; i < 100; i++) {
		size_t leaf = i % 10 < 6 ? 0 : i % 10 < 9 ? 1 : 2;
		uint32_t frames[] = {leaves[leaf], again, main_frame, start};

		sample(b, split, 42 + (uint32_t)i % 2, "split", 0, 4, frames);
	}
}

static void fill_hostile_names(struct builder *b, uint32_t owner, uint32_t file)
{
	static const char *const comms[] = {
		"a b",
		"a;b 12",
		"new\nline",
		"[kworker/0:1]",
		"",
		"</title>\"'&",
		"caf\xc3\xa9 \xe2\x82",
		"\xff\xfe\xfd",
		"\x1b[31mred",
		"x 5",
	};
	static const char *const names[] = {
		"operator<<(std::ostream&, a<b>)",
		"</script><img src=x onerror=alert(1)>",
		"caf\xe9\xff\xfe",
		"a;b c 17",
		"tab\there",
		"line\xe2\x80\xa8sep",
		"bidi\xe2\x80\xaeover",
		"quote\"back\\slash",
		"snow\xe2\x98\x83man",
		"[truncated: depth 127]",
	};

	for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
		uint32_t frames[2];

		frames[0] = frame(b, file, 0x1000 + i, PROFILE_USER, names[i], 0);
		frames[1] = frame(b, file, 0x2000, PROFILE_INLINED, "inlined_into;it", 0);
		sample(b, owner, 100 + i, comms[i], 0, 2, frames);
	}
}

static void fill_hostile_cuts(struct builder *b, uint32_t owner, uint32_t file)
{
	uint32_t frames[2], deep[255];

	frames[0] = frame(b, file, 0x3000, PROFILE_USER, "leaf", 0);
	frames[1] = frame(b, file, 0x8010, PROFILE_USER, "root", 0);
	/* None, each alone, in twos at two distances, and all. */
	sample(b, owner, 500, "cuts", 0, 2, frames);
	for (uint32_t i = 0; i < FLY_CUT_COUNT; i++) {
		for (uint32_t distance = 0; distance <= 6; distance += 3)
			sample(b, owner, 500, "cuts",
			       1U << i | 1U << (i + distance) % FLY_CUT_COUNT, 2, frames);
	}
	sample(b, owner, 500, "cuts", (1U << FLY_CUT_COUNT) - 1, 2, frames);
	sample(b, owner, 500, "cuts", 1U << FLY_CUT_NO_USER_REGISTERS, 0, NULL);
	for (uint32_t i = 0; i < ARRAY_SIZE(deep); i++)
		deep[i] = frames[i % 2];
	sample(b, owner, 501, "deep", 1U << FLY_CUT_DEPTH_LIMIT, ARRAY_SIZE(deep), deep);
}

static void fill_hostile_unnamed(struct builder *b, uint32_t owner)
{
	uint32_t files[] = {
		elf_file(b, 20, "/opt/\xff dir/lib;odd.so"),
		plain_file(b, 21, "/gone (x)/prog"),
		plain_file(b, 22, ""),
		plain_file(b, 23, "[vdso]"),
		plain_file(b, 24, "//anon"),
		plain_file(b, 25, "/"),
		elf_file(b, 26, "/same/twin"),
		elf_file(b, 26 + 256, "/same/twin"),
	};

	for (uint32_t reason = 0; reason < FLY_UNNAMED_COUNT; reason++) {
		for (uint32_t i = 0; i < ARRAY_SIZE(files); i++) {
			/* the last one lies outside every segment */
			uint64_t address = reason % 3 == 2 ? 0x7fff00001000 : 0x700 + reason;
			uint32_t f = frame(b, files[i], address + 0x10 * reason, PROFILE_USER, NULL,
					   (enum fly_unnamed)reason);

			sample(b, owner, 600, "unnamed", 0, 1, &f);
		}
	}
}

static void fill_hostile(struct builder *b)
{
	uint32_t file = elf_file(b, 10, "/tmp/<b>\n;\xff/prog \"x\"&");
	uint32_t owner = process(b, 77, "own\xff;er", "/tmp/<b>\n;\xff/prog \"x\"&");
	uint32_t reused = process(b, 78, "", "");

	fill_kernel(b);
	fill_jit(b);
	fill_split(b);
	fill_hostile_names(b, owner, file);
	fill_hostile_cuts(b, owner, file);
	fill_hostile_unnamed(b, reused);
}

/* About what one busy minute on four CPUs brings: 24,000 samples, 3,000 stacks. */
static void fill_large(struct builder *b)
{
	uint32_t files[20], seed = 1;

	for (uint32_t i = 0; i < ARRAY_SIZE(files); i++) {
		char path[64];

		snprintf(path, sizeof(path), "/usr/lib/x86_64-linux-gnu/liblarge-%u.so.1", i);
		files[i] = elf_file(b, 1000 + i, path);
	}
	for (int i = 0; i < 24000 && !b->err; i++) {
		uint32_t frames[40], count, owner, walk;
		char comm[16];

		seed = seed * 1664525 + 1013904223;
		walk = seed >> 8 & 2999;
		count = 8 + walk % 32;
		for (uint32_t k = 0; k < count; k++) {
			char name[96];

			walk = walk * 69069 + k + 1;
			snprintf(name, sizeof(name),
				 "large::module_%u::function_%u(std::string const&)",
				 walk >> 3 & 63, walk >> 9 & 127);
			frames[k] = frame(b, files[walk % ARRAY_SIZE(files)],
					  0x6a0 + (walk >> 9 & 0xfff), PROFILE_USER, name, 0);
		}
		snprintf(comm, sizeof(comm), "worker-%u", seed >> 16 & 7);
		owner = process(b, 5000 + (seed >> 20 & 31), "large", "/usr/bin/large");
		sample(b, owner, 5000 + (seed >> 20 & 31), comm, 0, count, frames);
	}
}

static void fill_inlined(struct builder *b)
{
	static const struct profile_line chain[] = {
		{"inner;x", "/src/a.h", 7}, {"middle", "/src/a.c", 20}, {"outer", "/src/a.c", 30}};
	static const struct profile_line call = {"main", "/src/main.c", 60};
	uint32_t file = elf_file(b, 30, "/usr/bin/inlined");
	uint32_t owner = process(b, 90, "inlined", "/usr/bin/inlined");
	uint32_t leaf = frame(b, file, 0x800, PROFILE_USER, "outer", 0);
	uint32_t plain = frame(b, file, 0x900, PROFILE_USER, "outer", 0);
	uint32_t nameless = frame(b, file, 0xa00, PROFILE_USER, NULL, FLY_UNNAMED_NO_SYMBOL);
	uint32_t by_lines = frame(b, file, 0xb00, PROFILE_USER, NULL, FLY_UNNAMED_NO_SYMBOL);
	uint32_t failed = frame(b, file, 0xc00, PROFILE_USER, "broken", 0);
	uint32_t root = frame(b, file, 0x710, PROFILE_USER, "main", 0);
	const struct profile_line unknown[] = {
		chain[0], {NULL, "/src/b.c", 1}, {"", "/src/b.c", 3}};

	if (b->err)
		return;
	profile_location_lines(b->p, leaf, chain, 3);
	profile_location_lines(b->p, plain, &chain[2], 1);
	profile_location_lines(b->p, nameless, unknown, 3);
	profile_location_lines(b->p, by_lines, &chain[1], 2);
	profile_location_lines(b->p, root, &call, 1);
	profile_location_unlined(b->p, failed, FLY_UNNAMED_READER_FAILED);
	for (int i = 0; i < 10; i++) {
		const uint32_t leaves[] = {leaf,  leaf,	    leaf,     leaf,	plain,
					   plain, nameless, nameless, by_lines, failed};
		uint32_t frames[] = {leaves[i], root};

		sample(b, owner, 90, "inlined", 0, 2, frames);
	}
}

void fixture_run(struct profile *p)
{
	struct profile_run run = {.start_realtime_ns = FIXTURE_START_NS,
				  .duration_ns = 5000000000,
				  .cpus = 2,
				  .hz = 99,
				  .own_user_ns = 12345678,
				  .own_system_ns = -1,
				  .bpf_run_ns = 99};
	struct profile_totals t;

	profile_totals_get(p, &t);
	run.ledger.delivered = t.samples;
	run.ledger.delivered_ns = t.weight_ns;
	run.ledger.dropped[FLY_DROP_RING_FULL] = 7;
	run.ledger.dropped_ns[FLY_DROP_RING_FULL] = 7 * FIXTURE_PERIOD_NS;
	run.ledger.taken = t.samples + 7;
	run.ledger.taken_ns = t.weight_ns + 7 * FIXTURE_PERIOD_NS;
	run.ledger.idle = 500;
	run.ledger.filtered = 3;
	run.ledger.ticks = run.ledger.taken + 503;
	run.ledger.missed_by_kernel = 2;
	profile_run_set(p, &run);
}

int fixture_fill(struct profile *p, enum fixture_kind kind)
{
	static void (*const fill[FIXTURE_KINDS])(struct builder *) = {
		[FIXTURE_KERNEL_ONLY] = fill_kernel, [FIXTURE_JIT_ONLY] = fill_jit,
		[FIXTURE_SPLIT] = fill_split,	     [FIXTURE_HOSTILE] = fill_hostile,
		[FIXTURE_LARGE] = fill_large,	     [FIXTURE_INLINED] = fill_inlined,
	};
	struct builder b = {.p = p, .now_ns = FIXTURE_START_NS};

	if (fill[kind])
		fill[kind](&b);
	fixture_run(p);
	return b.err;
}

int fixture_sink(void *ctx, const void *data, size_t bytes)
{
	struct fixture_bytes *b = ctx;

	if (b->fail_after && b->len + bytes > b->fail_after)
		return -EPIPE;
	if (b->len + bytes + 1 > b->cap) {
		size_t cap = 2 * (b->len + bytes + 1);
		unsigned char *grown = realloc(b->data, cap);

		if (!grown)
			abort();
		b->data = grown;
		b->cap = cap;
	}
	memcpy(b->data + b->len, data, bytes);
	b->len += bytes;
	b->data[b->len] = 0;
	return 0;
}

void fixture_bytes_done(struct fixture_bytes *bytes)
{
	free(bytes->data);
	memset(bytes, 0, sizeof(*bytes));
}
