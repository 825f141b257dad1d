// SPDX-License-Identifier: Apache-2.0
/* Makes symbol files. Names go to the file as they are found; what is kept in memory are spans, of
 * 16 bytes each, and what the source at hand needs. */
#include "symbol_order.h"
#include "symbol_sources.h"
#include "symbol_spans.h"

#include "elf/elf_link.h"
#include "elf/elf_minidebug.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY     256 /* calls for one look at the clock */
#define STUB_STEP      8   /* the smallest stub, and its alignment */
#define STUB_BATCH     16384
#define STUB_BYTES_MAX (4U << 20) /* of PLT sections */

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

bool symbol_pack_is_late(struct symbol_pack_writer *w)
{
	if (!w->err && w->end_cpu_ns && ++w->calls % LOOK_EVERY == 0 && cpu_ns() > w->end_cpu_ns)
		w->err = -ETIME;
	return w->err != 0;
}

/* ------------------------------------------------------------------ writing */

static int write_at(int fd, uint64_t at, const char *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = pwrite(fd, data, bytes, (off_t)at);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		at += (size_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

static void part_write(struct symbol_pack_writer *w)
{
	if (!w->err)
		w->err = write_at(w->fd, w->at, w->part, w->used);
	w->at += w->used;
	w->used = 0;
}

static void add(struct symbol_pack_writer *w, const void *data, size_t bytes)
{
	const char *p = data;

	elf_blake2b_add(&w->hash, data, bytes);
	while (bytes) {
		size_t n = sizeof(w->part) - w->used;

		n = bytes < n ? bytes : n;
		memcpy(w->part + w->used, p, n);
		w->used += n;
		p += n;
		bytes -= n;
		if (w->used == sizeof(w->part))
			part_write(w);
	}
}

uint32_t symbol_pack_name(struct symbol_pack_writer *w, const char *name)
{
	size_t bytes = strlen(name) + 1;
	uint32_t at = w->names_bytes;

	if (!name[0] || w->err)
		return 0;
	if (bytes > SYMBOL_PACKED_NAMES_MAX - at) {
		w->err = -ERANGE;
		return 0;
	}
	add(w, name, bytes);
	w->names_bytes += (uint32_t)bytes;
	return at;
}

static uint32_t resumed_add(struct symbol_packed_resumed **items, size_t *count, size_t *cap,
			    const struct symbol_span *s, int *err)
{
	void *p = *items;

	*err = mem_grow(MEM_SYMBOL, &p, cap, *count + 1, SYMBOL_PACKED_COUNT_MAX, sizeof(**items));
	*items = p;
	if (*err)
		return 0;
	(*items)[*count] = (struct symbol_packed_resumed){s->back, s->name};
	return SYMBOL_PACKED_RESUMED | (uint32_t)(*count)++;
}

static int tables_write(struct symbol_pack_writer *w, const struct symbol_spans *spans,
			struct symbol_packed_header *h)
{
	struct symbol_packed_resumed *resumed = NULL;
	size_t count = 0, cap = 0;
	int err = 0;

	for (size_t i = 0; i < spans->count; i++) {
		uint32_t start = (uint32_t)(spans->items[i].start - h->base);

		add(w, &start, sizeof(start));
	}
	for (size_t i = 0; i < spans->count && !err; i++) {
		uint32_t ref = spans->items[i].name;

		if (ref && spans->items[i].back)
			ref = resumed_add(&resumed, &count, &cap, &spans->items[i], &err);
		add(w, &ref, sizeof(ref));
	}
	add(w, resumed, count * sizeof(*resumed));
	mem_free(MEM_SYMBOL, resumed);
	h->count = (uint32_t)spans->count;
	h->resumed_count = (uint32_t)count;
	return err;
}

static int file_end(struct symbol_pack_writer *w, const struct symbol_spans *spans,
		    const struct symbol_pack_options *options, const struct elf_info *info)
{
	struct symbol_packed_header h = {.magic = SYMBOL_PACKED_MAGIC,
					 .version = SYMBOL_PACKED_VERSION,
					 .header_bytes = sizeof(h),
					 .base = spans->count ? spans->items[0].start : 0,
					 .is_stripped = options->is_stripped,
					 .is_protected = options->is_protected,
					 .info = *info};
	int err;

	memcpy(h.digest, options->digest, sizeof(h.digest));
	snprintf(h.link, sizeof(h.link), "%s", options->link ? options->link : "");
	if (spans->count && spans->items[spans->count - 1].start - h.base > UINT32_MAX)
		return -ERANGE;
	while (w->names_bytes % sizeof(uint32_t)) {
		add(w, "", 1);
		w->names_bytes++;
	}
	h.names_bytes = w->names_bytes;
	err = tables_write(w, spans, &h);
	part_write(w);
	h.file_bytes = w->at;
	elf_blake2b_add(&w->hash, &h, sizeof(h));
	elf_blake2b_end(&w->hash, h.checksum);
	if (!err)
		err = w->err;
	return err ? err : write_at(w->fd, 0, (const char *)&h, sizeof(h));
}

/* ------------------------------------------------------------------ sources */

struct go_pack {
	struct symbol_pack_writer *writer;
	struct symbol_spans *spans;
};

static int go_function(void *ctx, uint64_t start, uint64_t end, const char *name)
{
	struct go_pack *g = ctx;
	int err = symbol_spans_add(g->spans, start, start, symbol_pack_name(g->writer, name));

	if (!err)
		err = symbol_spans_add(g->spans, end, end, 0);
	return err ? err : symbol_pack_is_late(g->writer) ? g->writer->err : 0;
}

static int pack_go(struct elf_file *elf, struct symbol_pack_writer *w, struct symbol_spans *ret,
		   struct why *why)
{
	struct go_pack g = {w, ret};

	return symbol_go_visit(elf, go_function, &g, why);
}

static int pack_minidebug(struct elf_file *elf, struct symbol_pack_writer *w,
			  struct symbol_spans *ret, struct why *why)
{
	struct elf_file *mini;
	size_t bytes;
	void *image;
	int err = elf_minidebug_unpack(elf, &image, &bytes, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	err = elf_open_memory(image, bytes, &mini, why);
	if (!err) {
		err = symbol_pack_table(mini, w, ret, why);
		elf_close(mini);
	}
	mem_free(MEM_ELF, image);
	return err;
}

static int stubs_add(struct symbol_pack_writer *w, struct symbol_query *queries, size_t count,
		     struct symbol_spans *ret)
{
	uint64_t last = 0;
	uint32_t name = 0;
	int err = 0;

	for (size_t i = 0; i < count && !err; i++) {
		const struct symbol_query *q = &queries[i];

		/* The second half of a stub of 16 bytes has the name of the first. */
		if (!q->found)
			name = 0;
		else if (!name || q->start != last)
			name = symbol_pack_name(w, q->name);
		last = q->start;
		err = symbol_spans_add(ret, q->address, q->start,
				       name ? name | SYMBOL_PACKED_FINAL : 0);
		if (!err)
			err = symbol_spans_add(ret, q->address + STUB_STEP, 0, 0);
		if (!err && symbol_pack_is_late(w))
			err = w->err;
	}
	return err;
}

static int pack_stubs(struct elf_file *elf, struct symbol_pack_writer *w, uint64_t from,
		      uint64_t to, struct symbol_query *queries, struct symbol_spans *ret,
		      struct why *why)
{
	int err = 0;

	while (from < to && !err) {
		size_t count = 0;

		memset(queries, 0, STUB_BATCH * sizeof(*queries));
		for (; from < to && count < STUB_BATCH; from += STUB_STEP)
			queries[count++].address = from;
		err = symbol_lookup_plt(elf, queries, count, why);
		if (!err)
			err = stubs_add(w, queries, count, ret);
		for (size_t i = 0; i < count; i++)
			mem_free(MEM_SYMBOL, queries[i].name);
	}
	return err;
}

/* Every place where a stub may begin is asked for. */
static int pack_plt(struct elf_file *elf, struct symbol_pack_writer *w, struct symbol_spans *ret,
		    struct why *why)
{
	struct symbol_query *queries = mem_array(MEM_SYMBOL, STUB_BATCH, sizeof(*queries));
	uint64_t left = STUB_BYTES_MAX;
	int err = queries ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < elf->shnum && !err; i++) {
		struct symbol_spans section = {0};
		char name[ELF_SECTION_NAME_MAX];
		Elf64_Shdr h;

		err = elf_section_header(elf, i, &h);
		if (err || !(h.sh_flags & SHF_EXECINSTR) || !elf_section_is_inside(elf, &h) ||
		    h.sh_addr > UINT64_MAX - h.sh_size)
			continue;
		elf_section_name(elf, &h, name, sizeof(name));
		if (strncmp(name, ".plt", 4) && strncmp(name, ".iplt", 5))
			continue;
		if (h.sh_size > left) {
			err = -ERANGE;
			break;
		}
		left -= h.sh_size;
		err = pack_stubs(elf, w, h.sh_addr & ~(uint64_t)(STUB_STEP - 1),
				 h.sh_addr + h.sh_size, queries, &section, why);
		if (!err)
			err = symbol_spans_fill(ret, &section);
		symbol_spans_done(&section);
	}
	mem_free(MEM_SYMBOL, queries);
	return err;
}

typedef int (*source)(struct elf_file *elf, struct symbol_pack_writer *w, struct symbol_spans *ret,
		      struct why *why);

static int sources_pack(struct elf_file *elf, struct symbol_pack_writer *w, bool is_table_only,
			struct symbol_spans *ret, struct why *why)
{
	static const source order[] = {pack_go, symbol_pack_table, pack_minidebug, pack_plt};
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(order) && !err; i++) {
		struct symbol_spans spans = {0};

		if (is_table_only && order[i] != symbol_pack_table)
			continue;
		err = order[i](elf, w, &spans, why);
		if (!err)
			err = symbol_spans_fill(ret, &spans);
		symbol_spans_done(&spans);
	}
	return err ? err : w->err;
}

int symbol_pack(struct elf_file *elf, const struct symbol_pack_options *options, int fd,
		struct why *why)
{
	struct symbol_pack_writer *w;
	struct symbol_spans spans = {0};
	int err;

	/* Without section headers Go's table and stubs are searched for, around what is asked. */
	if (!elf->shnum)
		return why_set(why, -EOPNOTSUPP, "a file without section headers");
	w = mem_alloc(MEM_SYMBOL, sizeof(*w));
	if (!w)
		return why_set(why, -ENOMEM, "out of memory");
	w->fd = fd;
	w->at = sizeof(struct symbol_packed_header);
	w->end_cpu_ns = options->cpu_ns ? cpu_ns() + options->cpu_ns : 0;
	elf_blake2b_init(&w->hash);
	add(w, "", 1);
	w->names_bytes = 1;
	err = sources_pack(elf, w, options->is_table_only, &spans, why);
	if (!err)
		err = file_end(w, &spans, options,
			       options->info ? options->info : elf_get_info(elf));
	symbol_spans_done(&spans);
	mem_free(MEM_SYMBOL, w);
	if (err == -ETIME)
		return why_set(why, err, "its symbol file takes too long");
	if (err == -ERANGE || err == -ENOSPC)
		return why_set(why, err, "its symbol file is past a limit");
	if (err && why && !why->text[0])
		return why_set(why, err, "its symbol file cannot be made: %s", strerror(-err));
	return err;
}
