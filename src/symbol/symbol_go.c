// SPDX-License-Identifier: Apache-2.0
/* Go's own table of functions and lines, which the runtime needs and strip leaves alone
 * (runtime/symtab.go pcHeader, _func, moduledata; debug/gosym/pclntab.go). From Go 1.18 on entries
 * count from the start of Go's text, which the table itself says only until 1.25: else it is had
 * from the runtime's moduledata, whose first words point into the table. In a program whose
 * pointers are still to be relocated these words are had from the relocations.
 *
 * The function table is sorted and streamed once for the batch; functions and line programs are
 * read for what was hit, with one limit on the work of them all. */
#include "symbol_order.h"
#include "symbol_sources.h"

#include "elf/elf_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_116	0xfffffffaU
#define MAGIC_118	0xfffffff0U
#define MAGIC_120	0xfffffff1U
#define SCAN_BYTES_MAX	(256ULL << 20) /* looked through for a table or a moduledata */
#define SCAN_ALIGN	8
#define SCAN_PART	32768	    /* below the window of elf_look */
#define STEPS_MAX	(16U << 20) /* of line programs, per batch */
#define FILE_NAME_MAX	4096
#define NO_UNIT		UINT32_MAX
#define NO_TEXT		UINT64_MAX
#define MODULE_TEXT	176 /* moduledata: offset of text; six slices lie between */
#define MODULE_MIN_PC	160
#define MODULE_NAMES	8
#define RELATIVE_X86_64 8
#define RELATIVE_ARM64	1027

/* Places are file offsets, checked as they are read. */
struct go_table {
	struct elf_file *elf;
	uint64_t offset, vaddr, bytes;
	bool is_118; /* or later: entries of 4 bytes, counted from text */
	uint32_t quantum;
	uint64_t count; /* functions; one more entry ends the last */
	uint64_t text;
	uint64_t names, units, files, steps, functions; /* offsets in the table */
};

struct go_hit {
	uint64_t entry;	   /* link-time address */
	uint64_t function; /* offset of _func in functions */
	bool is_found;
};

/* ------------------------------------------------------------------ finding the table */

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static bool is_magic(const uint8_t *p)
{
	uint32_t magic = get32(p);

	return (magic == MAGIC_116 || magic == MAGIC_118 || magic == MAGIC_120) && !p[4] && !p[5] &&
	       (p[6] == 1 || p[6] == 2 || p[6] == 4) && p[7] == 8;
}

/* Reads the header at t->offset. */
static int header_read(struct go_table *t)
{
	uint8_t head[72];
	const uint8_t *at = head + 24;
	uint64_t each;

	if (t->bytes < sizeof(head) || elf_read(t->elf, t->offset, head, sizeof(head)) ||
	    !is_magic(head))
		return -EBADMSG;
	t->is_118 = get32(head) != MAGIC_116;
	t->quantum = head[6];
	t->count = get64(head + 8);
	t->text = 0;
	if (t->is_118) {
		t->text = get64(head + 24);
		at += 8;
	}
	t->names = get64(at);
	t->units = get64(at + 8);
	t->files = get64(at + 16);
	t->steps = get64(at + 24);
	t->functions = get64(at + 32);
	each = t->is_118 ? 8 : 16;
	if (!t->count || t->count > SYMBOL_TABLE_MAX)
		return -ERANGE;
	if (t->names >= t->bytes || t->units >= t->bytes || t->files >= t->bytes ||
	    t->steps >= t->bytes || t->functions >= t->bytes ||
	    t->count * each > t->bytes - t->functions)
		return -EBADMSG;
	return 0;
}

/* True when a table that can be read begins here; what is behind it to end may be more. */
static bool table_try(struct go_table *t, uint64_t offset, uint64_t vaddr, uint64_t bytes)
{
	if (offset > t->elf->info.file_bytes || bytes > t->elf->info.file_bytes - offset)
		return false;
	t->offset = offset;
	t->vaddr = vaddr;
	t->bytes = bytes;
	return !header_read(t);
}

/* Calls found for each word of 8 bytes, aligned in the range, until it says true. The work of all
 * ranges is limited by left. found gets the word and its place in the range. */
struct scan {
	struct go_table *t;
	uint64_t offset, vaddr, bytes; /* the range */
	uint64_t first_entry;
	uint64_t left;
	bool (*found)(struct scan *scan, const uint8_t *word, uint64_t at);
};

static bool range_scan(struct scan *scan, uint64_t offset, uint64_t vaddr, uint64_t bytes)
{
	uint64_t size = scan->t->elf->info.file_bytes, at = 0;

	if (offset > size)
		return false;
	if (bytes > size - offset)
		bytes = size - offset;
	scan->offset = offset;
	scan->vaddr = vaddr;
	scan->bytes = bytes;
	while (at + SCAN_ALIGN <= bytes && scan->left >= SCAN_ALIGN) {
		uint64_t n = bytes - at < SCAN_PART ? bytes - at : SCAN_PART;
		const uint8_t *p;

		n -= n % SCAN_ALIGN;
		if (n > scan->left)
			n = scan->left - scan->left % SCAN_ALIGN;
		p = elf_look(scan->t->elf, &scan->t->elf->symbols, offset + at, (size_t)n);
		if (!p)
			return false;
		for (uint64_t i = 0; i < n; i += SCAN_ALIGN) {
			if (scan->found(scan, p + i, at + i))
				return true;
		}
		at += n;
		scan->left -= n;
	}
	return false;
}

static bool table_found(struct scan *scan, const uint8_t *word, uint64_t at)
{
	return is_magic(word) &&
	       table_try(scan->t, scan->offset + at, scan->vaddr + at, scan->bytes - at);
}

/* Without section headers: in what is mapped read-only, or is so after relocation. */
static int segments_scan(struct go_table *t)
{
	struct scan scan = {.t = t, .left = SCAN_BYTES_MAX, .found = table_found};
	Elf64_Phdr h;

	for (uint64_t i = 0; i < t->elf->phnum; i++) {
		if (elf_program_header(t->elf, i, &h))
			return -EBADMSG;
		if ((h.p_type == PT_LOAD && !(h.p_flags & (PF_W | PF_X))) ||
		    h.p_type == PT_GNU_RELRO) {
			if (range_scan(&scan, h.p_offset, h.p_vaddr, h.p_filesz))
				return 0;
		}
	}
	return -ENOENT;
}

static int table_find(struct go_table *t)
{
	static const char *const names[] = {".gopclntab", ".data.rel.ro.gopclntab"};
	Elf64_Shdr h;

	if (!t->elf->info.class64)
		return -ENOENT;
	if (!t->elf->shnum)
		return segments_scan(t);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (elf_section_named(t->elf, names[i], &h))
			continue;
		/* In a separate debug file the section is there without contents. */
		if (h.sh_type == SHT_NOBITS)
			return -ENOENT;
		return table_try(t, h.sh_offset, h.sh_addr, h.sh_size) ? 0 : -EBADMSG;
	}
	return -ENOENT;
}

/* ------------------------------------------------------------------ where Go's text begins */

static bool is_text(const struct go_table *t, uint64_t text)
{
	const struct elf_info *info = &t->elf->info;

	for (uint32_t i = 0; i < info->segment_count; i++) {
		if (text >= info->segments[i].vaddr &&
		    text - info->segments[i].vaddr < info->segments[i].file_bytes)
			return true;
	}
	return false;
}

/* The first entry, relative to text; moduledata's minpc must agree with it. */
static bool first_entry(struct go_table *t, uint64_t *ret)
{
	uint8_t entry[4];

	if (elf_read(t->elf, t->offset + t->functions, entry, sizeof(entry)))
		return false;
	*ret = get32(entry);
	return true;
}

static bool module_try(struct go_table *t, uint64_t offset, uint64_t first)
{
	uint8_t m[MODULE_TEXT + 8];

	if (elf_read(t->elf, offset, m, sizeof(m)) || get64(m) != t->vaddr ||
	    get64(m + MODULE_NAMES) != t->vaddr + t->names ||
	    get64(m + MODULE_MIN_PC) != get64(m + MODULE_TEXT) + first ||
	    !is_text(t, get64(m + MODULE_TEXT)))
		return false;
	t->text = get64(m + MODULE_TEXT);
	return true;
}

static bool module_found(struct scan *scan, const uint8_t *word, uint64_t at)
{
	return get64(word) == scan->t->vaddr &&
	       module_try(scan->t, scan->offset + at, scan->first_entry);
}

static bool module_in_data(struct go_table *t, uint64_t first)
{
	static const char *const names[] = {".go.module", ".noptrdata"};
	struct scan scan = {
		.t = t, .first_entry = first, .left = SCAN_BYTES_MAX, .found = module_found};
	Elf64_Shdr s;
	Elf64_Phdr h;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!elf_section_named(t->elf, names[i], &s) && s.sh_type != SHT_NOBITS &&
		    range_scan(&scan, s.sh_offset, s.sh_addr, s.sh_size))
			return true;
	}
	for (uint64_t i = 0; i < t->elf->phnum; i++) {
		if (elf_program_header(t->elf, i, &h))
			return false;
		if (h.p_type == PT_LOAD && h.p_flags & PF_W &&
		    range_scan(&scan, h.p_offset, h.p_vaddr, h.p_filesz))
			return true;
	}
	return false;
}

/* The words of moduledata as relocations: the candidates that point to the table, then theirs. */
struct module_words {
	const struct go_table *t;
	uint32_t relative;
	uint64_t first;
	uint64_t at[8]; /* where a relocation points to the table */
	uint64_t names[8], min_pc[8], text[8];
	size_t count;
};

static bool is_relative(const struct module_words *w, const struct elf_relocation *r)
{
	return r->type == w->relative;
}

static int note_candidate(void *ctx, const struct elf_relocation *r)
{
	struct module_words *w = ctx;

	if (is_relative(w, r) && (uint64_t)r->addend == w->t->vaddr && w->count < ARRAY_SIZE(w->at))
		w->at[w->count++] = r->offset;
	return 0;
}

static int note_word(void *ctx, const struct elf_relocation *r)
{
	struct module_words *w = ctx;

	if (!is_relative(w, r))
		return 0;
	for (size_t i = 0; i < w->count; i++) {
		uint64_t word = r->offset - w->at[i];

		if (word == MODULE_NAMES)
			w->names[i] = (uint64_t)r->addend;
		else if (word == MODULE_MIN_PC)
			w->min_pc[i] = (uint64_t)r->addend;
		else if (word == MODULE_TEXT)
			w->text[i] = (uint64_t)r->addend;
	}
	return 0;
}

static bool module_in_relocations(struct go_table *t, uint64_t first)
{
	struct module_words w = {.t = t, .first = first};

	w.relative = t->elf->info.machine == EM_AARCH64 ? RELATIVE_ARM64 : RELATIVE_X86_64;
	if (elf_relocations(t->elf, SYMBOL_TABLE_MAX, note_candidate, &w, NULL) || !w.count ||
	    elf_relocations(t->elf, SYMBOL_TABLE_MAX, note_word, &w, NULL))
		return false;
	for (size_t i = 0; i < w.count; i++) {
		if (w.names[i] == t->vaddr + t->names && w.min_pc[i] == w.text[i] + first &&
		    is_text(t, w.text[i])) {
			t->text = w.text[i];
			return true;
		}
	}
	return false;
}

static int text_find(struct go_table *t, struct why *why)
{
	Elf64_Shdr h;
	uint64_t first;

	if (!t->is_118) {
		t->text = 0;
		return 0;
	}
	if (t->text && is_text(t, t->text))
		return 0;
	if (!first_entry(t, &first))
		return why_set(why, -EBADMSG, "Go's function table is cut short");
	if (module_in_data(t, first) || module_in_relocations(t, first))
		return 0;
	if (!elf_section_named(t->elf, ".text", &h) && is_text(t, h.sh_addr)) {
		t->text = h.sh_addr;
		return 0;
	}
	return why_set(why, -EBADMSG, "nothing says where Go's text begins");
}

static int table_open(struct elf_file *elf, struct go_table *t, struct why *why)
{
	int err;

	memset(t, 0, sizeof(*t));
	t->elf = elf;
	err = table_find(t);
	if (err == -ENOENT)
		return err;
	if (err)
		return why_set(why, err, "Go's function table cannot be read");
	return text_find(t, why);
}

/* ------------------------------------------------------------------ functions of a batch */

struct cursor {
	uint64_t address;
	size_t index;
};

static int cursor_compare(const void *a, const void *b)
{
	const struct cursor *p = a, *q = b;

	return p->address < q->address ? -1 : p->address > q->address;
}

/* Entry index of the function table. */
static int entry_read(struct go_table *t, uint64_t index, uint64_t *ret_pc, uint64_t *ret_function)
{
	size_t each = t->is_118 ? 4 : 8;
	bool is_last = index == t->count;
	const uint8_t *p =
		elf_look(t->elf, &t->elf->symbols, t->offset + t->functions + index * 2 * each,
			 is_last ? each : 2 * each);

	if (!p)
		return -EBADMSG;
	*ret_pc = t->is_118 ? t->text + get32(p) : get64(p);
	*ret_function = is_last ? 0 : t->is_118 ? get32(p + each) : get64(p + each);
	return 0;
}

/* order is sorted by address; hits are by its index. One pass over the table. */
static int hits_find(struct go_table *t, const struct cursor *order, size_t count,
		     struct go_hit *hits)
{
	uint64_t pc, function, next_pc, next_function;
	size_t q = 0;

	if (entry_read(t, 0, &pc, &function))
		return -EBADMSG;
	while (q < count && order[q].address < pc)
		q++;
	for (uint64_t i = 0; i < t->count && q < count; i++) {
		if (entry_read(t, i + 1, &next_pc, &next_function))
			return -EBADMSG;
		/* A table that is not sorted is damaged: nothing behind can be trusted. */
		if (next_pc < pc)
			return -EBADMSG;
		for (; q < count && order[q].address < next_pc; q++)
			hits[q] = (struct go_hit){pc, function, true};
		pc = next_pc;
		function = next_function;
	}
	return 0;
}

/* Field n of _func, 4 bytes each behind the entry. */
static int field_read(struct go_table *t, uint64_t function, unsigned int n, uint32_t *ret)
{
	uint64_t at = (t->is_118 ? 4 : 8) + 4 * ((uint64_t)n - 1);
	const uint8_t *p;

	if (function > t->bytes - t->functions || at + 4 > t->bytes - t->functions - function)
		return -EBADMSG;
	p = elf_look(t->elf, &t->elf->headers, t->offset + t->functions + function + at, 4);
	if (!p)
		return -EBADMSG;
	*ret = get32(p);
	return 0;
}

/* Text at an offset from one of the table's parts, cut at out_size - 1. */
static int string_read(struct go_table *t, uint64_t base, uint64_t at, char *out, size_t out_size)
{
	size_t n = 0;

	if (at >= t->bytes - base)
		return -EBADMSG;
	while (n + 1 < out_size) {
		uint64_t from = base + at + n;
		size_t part = out_size - 1 - n < 256 ? out_size - 1 - n : 256, len;
		const char *p;

		if (from >= t->bytes)
			break;
		if (part > t->bytes - from)
			part = (size_t)(t->bytes - from);
		p = elf_look(t->elf, &t->elf->names, t->offset + from, part);
		if (!p)
			return -EBADMSG;
		len = strnlen(p, part);
		memcpy(out + n, p, len);
		n += len;
		if (len < part)
			break;
	}
	out[n] = 0;
	return n ? 0 : -ENOENT;
}

/* The mangled name of a function. -ENOENT and the like where it has none. */
static int name_read(struct go_table *t, uint64_t function, char raw[SYMBOL_NAME_MAX + 1])
{
	uint32_t at;

	if (field_read(t, function, 1, &at))
		return -EBADMSG;
	return string_read(t, t->names, at, raw, SYMBOL_NAME_MAX + 1);
}

static int name_answer(struct go_table *t, struct symbol_query *query, const struct go_hit *hit)
{
	char raw[SYMBOL_NAME_MAX + 1], text[SYMBOL_NAME_MAX], *name;

	if (name_read(t, hit->function, raw))
		return 0;
	symbol_demangle(raw, text, sizeof(text));
	name = mem_copy_string(MEM_SYMBOL, text);
	if (!name)
		return -ENOMEM;
	symbol_answer(query, hit->entry, name, NULL);
	return 0;
}

int symbol_lookup_go(struct elf_file *elf, struct symbol_query *queries, size_t count,
		     struct why *why)
{
	struct cursor *order = NULL;
	struct go_hit *hits = NULL;
	struct go_table t;
	int err;

	symbol_queries_reset(queries, count);
	if (!count)
		return 0;
	err = table_open(elf, &t, why);
	if (err)
		return err == -ENOENT ? 0 : err;
	order = mem_array(MEM_SYMBOL, count, sizeof(*order));
	hits = mem_array(MEM_SYMBOL, count, sizeof(*hits));
	if (!order || !hits) {
		err = why_set(why, -ENOMEM, "out of memory");
		goto out;
	}
	for (size_t i = 0; i < count; i++)
		order[i] = (struct cursor){queries[i].address, i};
	if (hits_find(&t, order, count, hits))
		err = why_set(why, -EBADMSG, "Go's function table is damaged");
	for (size_t i = 0; i < count; i++) {
		if (hits[i].is_found && name_answer(&t, &queries[i], &hits[i])) {
			err = why_set(why, -ENOMEM, "out of memory");
			break;
		}
	}
out:
	mem_free(MEM_SYMBOL, order);
	mem_free(MEM_SYMBOL, hits);
	return err;
}

int symbol_go_visit(struct elf_file *elf, symbol_go_function visit, void *ctx, struct why *why)
{
	uint64_t pc, function, next_pc, next_function;
	char raw[SYMBOL_NAME_MAX + 1];
	struct go_table t;
	int err = table_open(elf, &t, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	err = entry_read(&t, 0, &pc, &function);
	for (uint64_t i = 0; i < t.count && !err; i++) {
		err = entry_read(&t, i + 1, &next_pc, &next_function);
		if (!err && next_pc < pc)
			err = -EBADMSG;
		if (!err && next_pc > pc)
			err = visit(ctx, pc, next_pc, name_read(&t, function, raw) ? "" : raw);
		pc = next_pc;
		function = next_function;
	}
	return err == -EBADMSG ? why_set(why, err, "Go's function table is damaged") : err;
}

/* ------------------------------------------------------------------ lines */

/* A pc-value program (go12symtab): pairs of varints, the change of the value and that of the pc;
 * the value holds until the pc. */
struct program {
	struct go_table *t;
	uint64_t at;
	uint64_t pc;
	int32_t value;
	bool is_first;
	uint64_t *left;
};

static int varint_read(struct program *p, uint32_t *ret)
{
	uint32_t v = 0;

	for (unsigned int shift = 0; shift < 35; shift += 7) {
		const uint8_t *b;

		if (p->at >= p->t->bytes)
			return -EBADMSG;
		b = elf_look(p->t->elf, &p->t->elf->headers, p->t->offset + p->at, 1);
		if (!b)
			return -EBADMSG;
		p->at++;
		v |= (uint32_t)(*b & 0x7f) << shift;
		if (!(*b & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return -EBADMSG;
}

static void program_start(struct program *p, struct go_table *t, uint32_t at, uint64_t entry,
			  uint64_t *left)
{
	uint64_t place = t->steps + at;

	*p = (struct program){
		.t = t, .at = place, .pc = entry, .value = -1, .is_first = true, .left = left};
}

/* 1: the value now holds up to p->pc; 0: the program has ended. */
static int program_step(struct program *p)
{
	uint32_t change, advance;

	if (!*p->left)
		return -ERANGE;
	(*p->left)--;
	if (varint_read(p, &change))
		return -EBADMSG;
	if (!change && !p->is_first)
		return 0;
	p->is_first = false;
	if (varint_read(p, &advance))
		return -EBADMSG;
	p->value = (int32_t)((uint32_t)p->value + (change & 1 ? ~(change >> 1) : change >> 1));
	p->pc += (uint64_t)advance * p->t->quantum;
	return 1;
}

/* The value at an address; the program goes on from where it stands, so ask in order. */
static int program_value(struct program *p, uint64_t address, int32_t *ret)
{
	while (p->is_first || address >= p->pc) {
		int got = program_step(p);

		if (got <= 0)
			return got ? got : -ENOENT;
	}
	*ret = p->value;
	return 0;
}

static int file_read(struct go_table *t, uint64_t function, int32_t number, char *out, size_t size)
{
	uint32_t unit, at;
	uint8_t word[4];
	uint64_t place;

	if (number < 0 || field_read(t, function, 8, &unit) || unit == NO_UNIT)
		return -ENOENT;
	place = t->units + ((uint64_t)unit + (uint32_t)number) * 4;
	if (place + 4 > t->bytes || elf_read(t->elf, t->offset + place, word, sizeof(word)))
		return -EBADMSG;
	at = get32(word);
	if (at == NO_UNIT)
		return -ENOENT;
	return string_read(t, t->files, at, out, size);
}

/* The lines of one function: order[0..count) all lie in it. */
static int lines_answer(struct go_table *t, const struct go_hit *hit, const struct cursor *order,
			size_t count, struct symbol_line *lines, uint64_t *left)
{
	char raw[FILE_NAME_MAX], text[FILE_NAME_MAX];
	struct program file, line;
	uint32_t file_at, line_at;

	if (field_read(t, hit->function, 5, &file_at) || field_read(t, hit->function, 6, &line_at))
		return -EBADMSG;
	if (!file_at || !line_at) /* no program */
		return 0;
	program_start(&file, t, file_at, hit->entry, left);
	program_start(&line, t, line_at, hit->entry, left);
	for (size_t i = 0; i < count; i++) {
		struct symbol_line *out = &lines[order[i].index];
		int32_t file_number, number;
		int err = program_value(&file, out->address, &file_number);

		if (!err)
			err = program_value(&line, out->address, &number);
		if (err)
			return err == -ENOENT ? 0 : err;
		if (number <= 0 || file_read(t, hit->function, file_number, raw, sizeof(raw)))
			continue;
		text_print(raw, strlen(raw), text, sizeof(text));
		out->file = mem_copy_string(MEM_SYMBOL, text);
		if (!out->file)
			return -ENOMEM;
		out->line = (uint32_t)number;
	}
	return 0;
}

static int lines_find(struct go_table *t, const struct cursor *order, size_t count,
		      struct go_hit *hits, struct symbol_line *lines)
{
	uint64_t left = STEPS_MAX;
	int err = hits_find(t, order, count, hits);

	for (size_t i = 0, n; i < count; i += n) {
		int failed;

		for (n = 1;
		     i + n < count && hits[i + n].is_found && hits[i + n].entry == hits[i].entry;)
			n++;
		if (!hits[i].is_found) {
			n = 1;
			continue;
		}
		failed = lines_answer(t, &hits[i], order + i, n, lines, &left);
		if (failed == -ENOMEM || failed == -ERANGE)
			return failed;
		if (failed)
			err = failed;
	}
	return err;
}

int symbol_lines_go(struct elf_file *elf, struct symbol_line *lines, size_t count, struct why *why)
{
	struct cursor *order;
	struct go_hit *hits;
	struct go_table t;
	int err;

	for (size_t i = 0; i < count; i++) {
		lines[i].line = 0;
		lines[i].file = NULL;
	}
	if (!count)
		return 0;
	err = table_open(elf, &t, why);
	if (err)
		return err == -ENOENT ? 0 : err;
	order = mem_array(MEM_SYMBOL, count, sizeof(*order));
	hits = mem_array(MEM_SYMBOL, count, sizeof(*hits));
	if (order && hits) {
		for (size_t i = 0; i < count; i++)
			order[i] = (struct cursor){lines[i].address, i};
		qsort(order, count, sizeof(*order), cursor_compare);
		err = lines_find(&t, order, count, hits, lines);
	} else {
		err = -ENOMEM;
	}
	mem_free(MEM_SYMBOL, order);
	mem_free(MEM_SYMBOL, hits);
	if (err == -ENOMEM)
		return why_set(why, err, "out of memory");
	if (err == -ERANGE)
		return why_set(why, err, "Go's line programs are too long");
	return err ? why_set(why, err, "Go's line table is damaged") : 0;
}
