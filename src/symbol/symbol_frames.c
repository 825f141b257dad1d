// SPDX-License-Identifier: Apache-2.0
/*
 * Lines and inlined calls by libdw. Addresses are put in the order of their units, and each unit's
 * tree of entries is walked once for all of them: an entry is entered only when it covers one.
 * Offsets in the tree must rise, so that no chain of references makes a circle. DWARF 5 sections
 * 2.17 (addresses of an entry), 3.3.8 (inlined calls), 6.1.2 (aranges), 6.2 (lines).
 */
#include "symbol_frames.h"

#include "elf/elf_dwarf.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEMORY_MAX  (24U << 20) /* libdw's, before it is closed and opened again */
#define ARANGES_MAX (8U << 20)	/* bytes of the section: libdw holds all of it */
#define UNITS_MAX   (1U << 20)
#define NODES_MAX   65536
#define CLOCK_EVERY 256 /* entries and ranges between looks at the clock */
#define NO_UNIT	    UINT64_MAX

/* A function, or a call that was inlined into the one of parent. Id 0 is none. */
struct node {
	uint32_t parent;
	uint32_t function, file, line; /* of an inlined one: where it was called */
};

struct item {
	uint64_t address;
	Dwarf_Off unit;	 /* offset of its unit's entry, or NO_UNIT */
	uint32_t answer; /* index */
	uint32_t node;	 /* innermost that covers it */
	bool is_covered; /* by its unit's own ranges */
	bool is_done;
};

struct finder {
	struct symbol_frames *frames;
	struct elf_dwarf dwarf, supplement_dwarf;
	Elf *elf, *supplement_elf;
	Dwarf *dbg, *supplement;
	size_t memory_before;
	struct item *items; /* those not done, by unit and address */
	size_t count;
	struct node *nodes;
	size_t node_count, node_cap;
	uint64_t work, cpu_end_ns, wall_end_ns;
	bool is_over;
	/* of the unit at work */
	Dwarf_Files *files;
	size_t file_count;
	const char *directory; /* its compilation's */
};

/* ------------------------------------------------------------------ limits */

static uint64_t cpu_now_ns(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t))
		return 0;
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static bool is_late(const struct finder *f)
{
	return (f->cpu_end_ns && cpu_now_ns() > f->cpu_end_ns) ||
	       (f->wall_end_ns && clock_monotonic_ns() > f->wall_end_ns);
}

/* False when all is to end. */
static bool spend(struct finder *f)
{
	f->work++;
	if (f->work % CLOCK_EVERY == 0 && (f->work > SYMBOL_FRAMES_WORK_MAX || is_late(f)))
		f->is_over = true;
	return !f->is_over;
}

static size_t memory_now(void)
{
	const struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* ------------------------------------------------------------------ libdw, opened and closed */

static void dbg_close(struct finder *f)
{
	dwarf_end(f->dbg);
	dwarf_end(f->supplement);
	elf_end(f->elf);
	elf_end(f->supplement_elf);
	f->dbg = f->supplement = NULL;
	f->elf = f->supplement_elf = NULL;
}

static Dwarf *dbg_open_one(const struct elf_dwarf *dwarf, Elf **ret_elf)
{
	*ret_elf = elf_memory(dwarf->image, dwarf->bytes);
	return *ret_elf ? dwarf_begin_elf(*ret_elf, DWARF_C_READ, NULL) : NULL;
}

static int dbg_open(struct finder *f, struct why *why)
{
	f->memory_before = memory_now();
	f->dbg = dbg_open_one(&f->dwarf, &f->elf);
	if (!f->dbg)
		return why_set(why, -EBADMSG, "DWARF cannot be read: %s", dwarf_errmsg(-1));
	if (f->supplement_dwarf.image)
		f->supplement = dbg_open_one(&f->supplement_dwarf, &f->supplement_elf);
	if (f->supplement)
		dwarf_setalt(f->dbg, f->supplement);
	return 0;
}

/* Between units: what libdw keeps of the ones before is given back when it is much. */
static int dbg_refresh(struct finder *f, struct why *why)
{
	if (memory_now() < f->memory_before + MEMORY_MAX)
		return 0;
	dbg_close(f);
	return dbg_open(f, why);
}

/* ------------------------------------------------------------------ text */

static uint32_t text_add(struct finder *f, const char *text)
{
	int64_t id = strings_add_str(f->frames->strings, text);

	return id > 0 ? (uint32_t)id : 0;
}

/* Relative paths are so to the directory of the compilation. */
static uint32_t path_add(struct finder *f, const char *path)
{
	char joined[SYMBOL_FRAMES_PATH_MAX], clean[SYMBOL_FRAMES_PATH_MAX];
	const char *directory = f->directory && path && path[0] != '/' ? f->directory : "";
	int len;

	if (!path || !path[0])
		return 0;
	len = snprintf(joined, sizeof(joined), "%s%s%s", directory, directory[0] ? "/" : "", path);
	if (len < 0 || (size_t)len >= sizeof(joined))
		return 0;
	text_print(joined, (size_t)len, clean, sizeof(clean));
	return text_add(f, clean);
}

static uint32_t file_of(struct finder *f, Dwarf_Word index)
{
	if (!f->files || index >= f->file_count)
		return 0;
	return path_add(f, dwarf_filesrc(f->files, (size_t)index, NULL, NULL));
}

static const char *text_of(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attribute;

	return dwarf_formstring(dwarf_attr_integrate(die, name, &attribute));
}

/* The linkage name says more than the plain one: scopes and types. */
static uint32_t function_of(struct finder *f, Dwarf_Die *die)
{
	char name[SYMBOL_NAME_MAX];
	const char *text = text_of(die, DW_AT_linkage_name);

	if (!text)
		text = text_of(die, DW_AT_MIPS_linkage_name);
	if (!text)
		text = text_of(die, DW_AT_name);
	if (!text || !text[0])
		return 0;
	symbol_demangle(text, name, sizeof(name));
	return text_add(f, name);
}

/* ------------------------------------------------------------------ the tree of a unit */

static uint32_t number_of(Dwarf_Die *die, unsigned int name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	if (dwarf_formudata(dwarf_attr(die, name, &attribute), &value) || value > UINT32_MAX)
		return 0;
	return (uint32_t)value;
}

/* A node for a function or an inlined call; a block has its parent's. */
static uint32_t node_add(struct finder *f, Dwarf_Die *die, uint32_t parent)
{
	int tag = dwarf_tag(die);
	void *nodes = f->nodes;
	struct node *node;

	if (tag != DW_TAG_subprogram && tag != DW_TAG_inlined_subroutine)
		return parent;
	if (mem_grow(MEM_SYMBOL, &nodes, &f->node_cap, f->node_count + 1, NODES_MAX,
		     sizeof(*f->nodes))) {
		f->is_over = true;
		return parent;
	}
	f->nodes = nodes;
	node = &f->nodes[f->node_count];
	memset(node, 0, sizeof(*node));
	node->function = function_of(f, die);
	if (tag == DW_TAG_inlined_subroutine) {
		node->parent = parent;
		node->file = file_of(f, number_of(die, DW_AT_call_file));
		node->line = number_of(die, DW_AT_call_line);
	}
	return (uint32_t)f->node_count++;
}

static size_t first_at_or_above(const struct item *items, size_t count, uint64_t address)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (items[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Part of the items of a unit, and the node that covers them. */
struct span {
	size_t begin, end;
	uint32_t node;
};

/* Which items of the outer span a code entry covers. False: none. */
static bool cover(struct finder *f, struct item *items, Dwarf_Die *die, const struct span *outer,
		  struct span *ret)
{
	uint32_t node = 0;
	Dwarf_Addr base, low, high;
	ptrdiff_t next = 0;

	*ret = (struct span){outer->end, outer->begin, outer->node};
	while ((next = dwarf_ranges(die, next, &base, &low, &high)) > 0 && spend(f)) {
		size_t i;

		/* What a linker took out is left at 0. */
		if (!low || high <= low)
			continue;
		i = outer->begin +
		    first_at_or_above(items + outer->begin, outer->end - outer->begin, low);
		for (; i < outer->end && items[i].address < high; i++) {
			if (items[i].is_done)
				continue;
			if (!node)
				node = node_add(f, die, outer->node);
			items[i].node = node;
			ret->begin = i < ret->begin ? i : ret->begin;
			ret->end = i + 1 > ret->end ? i + 1 : ret->end;
		}
	}
	ret->node = node;
	return ret->begin < ret->end;
}

/* What is in an entry: nothing for us, code, or other entries that may be code. */
enum inside { INSIDE_NOTHING, INSIDE_CODE, INSIDE_ENTRIES };

static enum inside inside_of(Dwarf_Die *die)
{
	switch (dwarf_tag(die)) {
	case DW_TAG_subprogram:
	case DW_TAG_inlined_subroutine:
	case DW_TAG_lexical_block:
	case DW_TAG_try_block:
	case DW_TAG_catch_block:
	case DW_TAG_with_stmt:
		return INSIDE_CODE;
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type:
		return INSIDE_ENTRIES;
	default:
		return INSIDE_NOTHING;
	}
}

/* Steps to an entry behind the last one. */
static bool step(int (*get)(Dwarf_Die *from, Dwarf_Die *ret), Dwarf_Die *from, Dwarf_Die *ret)
{
	Dwarf_Die next;

	if (get(from, &next) || dwarf_dieoffset(&next) <= dwarf_dieoffset(from))
		return false;
	*ret = next;
	return true;
}

static void walk(struct finder *f, struct item *items, size_t count, Dwarf_Die *unit)
{
	struct {
		Dwarf_Die die;
		struct span span; /* of its parent */
	} levels[SYMBOL_FRAMES_DEPTH_MAX];
	int depth = 0;

	levels[0].span = (struct span){0, count, 0};
	if (!step(dwarf_child, unit, &levels[0].die))
		return;
	while (depth >= 0 && spend(f)) {
		Dwarf_Die *die = &levels[depth].die, child;
		struct span span = levels[depth].span;
		enum inside inside = inside_of(die);
		bool enters = inside == INSIDE_ENTRIES;

		if (inside == INSIDE_CODE)
			enters = cover(f, items, die, &levels[depth].span, &span);
		if (enters && depth + 1 < SYMBOL_FRAMES_DEPTH_MAX &&
		    step(dwarf_child, die, &child)) {
			depth++;
			levels[depth].die = child;
			levels[depth].span = span;
			continue;
		}
		while (depth >= 0 && !step(dwarf_siblingof, &levels[depth].die, &levels[depth].die))
			depth--;
	}
}

/* ------------------------------------------------------------------ one unit */

static void frame_add(struct finder *f, struct symbol_frames_answer *answer, uint32_t function,
		      uint32_t file, uint32_t line)
{
	struct symbol_frames *frames = f->frames;
	void *p = frames->frames;

	/* Without memory the answer is shorter by one. */
	if (mem_grow(MEM_SYMBOL, &p, &frames->frame_cap, frames->frame_count + 1, 1U << 20,
		     sizeof(*frames->frames)))
		return;
	frames->frames = p;
	frames->frames[frames->frame_count++] = (struct symbol_frame){function, file, line};
	answer->count++;
}

/* The chain of an item, innermost first. An inlined call whose name is not known is left out: it
 * would say no more than the call does. */
static void answer(struct finder *f, const struct item *item, uint32_t file, uint32_t line)
{
	struct symbol_frames_answer *a = &f->frames->answers[item->answer];
	uint32_t id = item->node, function = 0;

	a->first = (uint32_t)f->frames->frame_count;
	a->count = 0;
	a->state = SYMBOL_FRAMES_FOUND;
	while (id && f->nodes[id].parent) {
		const struct node *node = &f->nodes[id];

		if (node->function && a->count < SYMBOL_FRAMES_MAX - 1)
			frame_add(f, a, node->function, file, line);
		file = node->file;
		line = node->line;
		id = node->parent;
	}
	if (id)
		function = f->nodes[id].function;
	frame_add(f, a, function, file, line);
	/* Another unit may say more. */
	if (!a->count || (a->count == 1 && !function && !file)) {
		a->state = SYMBOL_FRAMES_NONE;
		a->count = 0;
	}
}

/* How long the unit's line program is; 0: there is none, or it cannot be. */
static uint64_t line_program_bytes(const struct finder *f, Dwarf_Die *unit)
{
	const uint8_t *data = f->dwarf.sections[ELF_DWARF_LINE].data;
	uint64_t size = f->dwarf.sections[ELF_DWARF_LINE].bytes, length;
	Dwarf_Attribute attribute;
	Dwarf_Word at;
	uint32_t short_length;

	if (dwarf_formudata(dwarf_attr(unit, DW_AT_stmt_list, &attribute), &at) || at > size ||
	    size - at < 12)
		return 0;
	memcpy(&short_length, data + at, sizeof(short_length));
	if (short_length != UINT32_MAX)
		return short_length;
	memcpy(&length, data + at + 4, sizeof(length));
	return length;
}

/* Marks the items, sorted by address, that lie in the unit's own ranges. False: none. */
static bool mark_covered(struct finder *f, struct item *items, size_t count, Dwarf_Die *unit)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t next = 0;
	bool is_any = false;

	for (size_t i = 0; i < count; i++)
		items[i].is_covered = false;
	while ((next = dwarf_ranges(unit, next, &base, &low, &high)) > 0 && spend(f)) {
		for (size_t i = low ? first_at_or_above(items, count, low) : count;
		     i < count && items[i].address < high; i++) {
			items[i].is_covered = true;
			is_any = true;
		}
	}
	return is_any;
}

static void item_resolve(struct finder *f, struct item *item, Dwarf_Die *unit)
{
	uint32_t file = 0;
	Dwarf_Line *row;
	int line = 0;

	/* Code without an entry of its own (assembler) has lines at least. */
	if (!item->node && !item->is_covered)
		return;
	row = f->files ? dwarf_getsrc_die(unit, item->address) : NULL;
	if (row) {
		file = path_add(f, dwarf_linesrc(row, NULL, NULL));
		if (dwarf_lineno(row, &line) || line < 0)
			line = 0;
	}
	answer(f, item, file, (uint32_t)line);
	item->is_done = f->frames->answers[item->answer].state == SYMBOL_FRAMES_FOUND;
}

/* Items are those of one unit, by address. */
static void unit_resolve(struct finder *f, struct item *items, size_t count, Dwarf_Die *unit)
{
	uint64_t bytes = line_program_bytes(f, unit);

	f->files = NULL;
	f->directory = text_of(unit, DW_AT_comp_dir);
	f->node_count = 1;
	if (bytes > SYMBOL_FRAMES_LINES_MAX) {
		for (size_t i = 0; i < count; i++) {
			if (!items[i].is_done)
				f->frames->answers[items[i].answer].state = SYMBOL_FRAMES_TOO_LARGE;
		}
		return;
	}
	if (bytes && dwarf_getsrcfiles(unit, &f->files, &f->file_count))
		f->files = NULL;
	walk(f, items, count, unit);
	for (size_t i = 0; i < count; i++) {
		/* An entry that is not whole would show too short a chain. */
		if (f->is_over)
			return;
		if (!items[i].is_done)
			item_resolve(f, &items[i], unit);
		items[i].node = 0;
	}
}

/* ------------------------------------------------------------------ all units */

static int compare_unit(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	return (x->address > y->address) - (x->address < y->address);
}

static int compare_address(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static int by_aranges(struct finder *f, struct why *why)
{
	Dwarf_Aranges *aranges;
	size_t count;
	int err = 0;

	if (f->dwarf.sections[ELF_DWARF_ARANGES].bytes > ARANGES_MAX ||
	    dwarf_getaranges(f->dbg, &aranges, &count))
		return 0;
	for (size_t i = 0; i < f->count; i++) {
		Dwarf_Arange *arange = dwarf_getarange_addr(aranges, f->items[i].address);

		if (!arange || dwarf_getarangeinfo(arange, NULL, NULL, &f->items[i].unit))
			f->items[i].unit = NO_UNIT;
	}
	qsort(f->items, f->count, sizeof(*f->items), compare_unit);
	for (size_t i = 0, n; i < f->count && f->items[i].unit != NO_UNIT && spend(f); i += n) {
		Dwarf_Die unit;

		for (n = 1; i + n < f->count && f->items[i + n].unit == f->items[i].unit;)
			n++;
		err = dbg_refresh(f, why);
		if (err)
			return err;
		if (!dwarf_offdie(f->dbg, f->items[i].unit, &unit))
			continue;
		mark_covered(f, f->items + i, n, &unit);
		unit_resolve(f, f->items + i, n, &unit);
	}
	return 0;
}

/* Keeps the items without an answer, by address. */
static void keep_open(struct finder *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->count; i++) {
		const struct item *item = &f->items[i];

		if (f->frames->answers[item->answer].state == SYMBOL_FRAMES_NONE)
			f->items[n++] = *item;
	}
	f->count = n;
	qsort(f->items, f->count, sizeof(*f->items), compare_address);
}

/* Units that .debug_aranges does not tell: clang writes none. */
static int by_scan(struct finder *f, struct why *why)
{
	Dwarf_Off at = 0, next = 0;
	size_t head_bytes;
	int err = 0;

	for (unsigned int i = 0; !err && i < UNITS_MAX && f->count && spend(f); i++, at = next) {
		Dwarf_Die unit;

		if (dwarf_nextcu(f->dbg, at, &next, &head_bytes, NULL, NULL, NULL) || next <= at)
			break;
		if (!dwarf_offdie(f->dbg, at + head_bytes, &unit))
			continue;
		if (dwarf_tag(&unit) != DW_TAG_compile_unit &&
		    dwarf_tag(&unit) != DW_TAG_skeleton_unit)
			continue;
		if (!mark_covered(f, f->items, f->count, &unit))
			continue;
		unit_resolve(f, f->items, f->count, &unit);
		keep_open(f);
		err = dbg_refresh(f, why);
	}
	return err;
}

static void items_fill(struct finder *f)
{
	f->count = f->frames->count;
	for (size_t i = 0; i < f->count; i++)
		f->items[i] = (struct item){.address = f->frames->answers[i].address,
					    .unit = NO_UNIT,
					    .answer = (uint32_t)i};
}

static void mark_not_reached(struct finder *f)
{
	for (size_t i = 0; i < f->frames->count; i++) {
		if (f->frames->answers[i].state == SYMBOL_FRAMES_NONE)
			f->frames->answers[i].state = SYMBOL_FRAMES_NOT_REACHED;
	}
}

static int find(struct finder *f, struct why *why)
{
	void *nodes = NULL;
	int err = mem_grow(MEM_SYMBOL, &nodes, &f->node_cap, 64, NODES_MAX, sizeof(*f->nodes));

	f->nodes = nodes;
	f->items = mem_array(MEM_SYMBOL, f->frames->count, sizeof(*f->items));
	if (err || !f->items)
		return why_set(why, -ENOMEM, "out of memory");
	elf_version(EV_CURRENT);
	err = dbg_open(f, why);
	if (err)
		return err;
	items_fill(f);
	err = by_aranges(f, why);
	if (!err && !f->is_over) {
		keep_open(f);
		err = by_scan(f, why);
	}
	if (f->is_over)
		mark_not_reached(f);
	return err;
}

/* Go's table: a line for the function that holds the code, and nothing of inlined calls. */
static int find_go(struct elf_file *elf, struct symbol_frames *frames, struct why *why)
{
	struct symbol_line *lines = mem_array(MEM_SYMBOL, frames->count, sizeof(*lines));
	struct finder f = {.frames = frames};
	size_t found = 0;
	int err;

	if (!lines)
		return why_set(why, -ENOMEM, "out of memory");
	for (size_t i = 0; i < frames->count; i++)
		lines[i].address = frames->answers[i].address;
	err = symbol_lines_go(elf, lines, frames->count, why);
	for (size_t i = 0; i < frames->count; i++) {
		struct symbol_frames_answer *a = &frames->answers[i];

		if (!err && lines[i].line && lines[i].file) {
			a->first = (uint32_t)frames->frame_count;
			frame_add(&f, a, 0, path_add(&f, lines[i].file), lines[i].line);
			a->state = a->count ? SYMBOL_FRAMES_FOUND : SYMBOL_FRAMES_NONE;
			found++;
		}
		mem_free(MEM_SYMBOL, lines[i].file);
	}
	mem_free(MEM_SYMBOL, lines);
	if (!err && !found)
		return why_set(why, -ENOENT, "the file has no line information");
	return err;
}

int symbol_frames_find(struct elf_file *elf, struct elf_file *supplement,
		       const struct symbol_frames_limits *limits, struct symbol_frames *frames,
		       struct why *why)
{
	struct finder f = {.frames = frames};
	int err = elf_dwarf_open(elf, &f.dwarf, why);

	if (err == -ENOENT)
		return find_go(elf, frames, why);
	if (err)
		return err;
	if (supplement && elf_dwarf_open(supplement, &f.supplement_dwarf, NULL))
		memset(&f.supplement_dwarf, 0, sizeof(f.supplement_dwarf));
	if (limits->cpu_ns)
		f.cpu_end_ns = cpu_now_ns() + limits->cpu_ns;
	if (limits->wall_ns)
		f.wall_end_ns = clock_monotonic_ns() + limits->wall_ns;
	err = find(&f, why);
	dbg_close(&f);
	elf_dwarf_close(&f.dwarf);
	elf_dwarf_close(&f.supplement_dwarf);
	mem_free(MEM_SYMBOL, f.items);
	mem_free(MEM_SYMBOL, f.nodes);
	return err;
}

/* ------------------------------------------------------------------ the batch */

static int compare_answer(const void *a, const void *b)
{
	const struct symbol_frames_answer *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

int symbol_frames_new(const uint64_t *addresses, size_t count, struct symbol_frames **ret)
{
	struct symbol_frames *frames = mem_alloc(MEM_SYMBOL, sizeof(*frames));

	if (!frames)
		return -ENOMEM;
	frames->answers = mem_array(MEM_SYMBOL, count, sizeof(*frames->answers));
	if (!frames->answers || strings_new(MEM_SYMBOL, SYMBOL_FRAMES_TEXT_MAX, &frames->strings)) {
		symbol_frames_free(frames);
		return -ENOMEM;
	}
	frames->count = count;
	for (size_t i = 0; i < count; i++)
		frames->answers[i].address = addresses[i];
	qsort(frames->answers, count, sizeof(*frames->answers), compare_answer);
	*ret = frames;
	return 0;
}

void symbol_frames_free(struct symbol_frames *frames)
{
	if (!frames)
		return;
	if (frames->strings)
		strings_free(frames->strings);
	mem_free(MEM_SYMBOL, frames->answers);
	mem_free(MEM_SYMBOL, frames->frames);
	mem_free(MEM_SYMBOL, frames);
}
