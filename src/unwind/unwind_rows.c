// SPDX-License-Identifier: Apache-2.0
/*
 * The stages of a row: waiting (it may be replaced by another at its address), in force (a change
 * of rule), half of a group, group of a page.
 *
 * What is read by fly_rows_find must hold: a page has fewer than FLY_GROUPS_MAX groups, the last
 * word of a run of shapes is 0, and shapes do not cross runs.
 */
#include "unwind_rows.h"

#include <errno.h>
#include <string.h>

#define RULE_SLOTS	 (2 * FLY_RULES_MAX)
#define SHAPE_SLOTS_MIN	 1024U
#define SHAPE_WORDS	 (FLY_GROUP_ROWS / 2)
#define MANY_ROWS_SHAPES (FLY_SHAPES_MAX - FLY_RULES_MAX - FLY_SHAPE_RUNS * SHAPE_WORDS)

static const struct fly_rule unsupported = {.cfa = FLY_CFA_UNSUPPORTED};

int unwind_rows_init(struct unwind_rows *rows, struct unwind_table *table,
		     const struct unwind_arch *arch, size_t bytes_max)
{
	*rows = (struct unwind_rows){.table = table, .arch = arch, .bytes_max = bytes_max};
	rows->shape_slot_count = SHAPE_SLOTS_MIN;
	rows->rule_slots = mem_array(UNWIND_MEM, RULE_SLOTS, sizeof(*rows->rule_slots));
	rows->shape_slots = mem_array(UNWIND_MEM, SHAPE_SLOTS_MIN, sizeof(*rows->shape_slots));
	if (!rows->rule_slots || !rows->shape_slots ||
	    mem_grow(UNWIND_MEM, (void **)&table->rules, &rows->rules_cap, 64, FLY_RULES_MAX,
		     sizeof(*table->rules)) ||
	    mem_grow(UNWIND_MEM, (void **)&table->shapes, &rows->shapes_cap, 256, FLY_SHAPES_MAX,
		     sizeof(*table->shapes))) {
		unwind_rows_done(rows);
		return -ENOMEM;
	}
	/* Rule 0 says that nothing is known; shape 0 is not used. */
	table->rules[0] = (struct fly_rule){0};
	table->rule_count = 1;
	table->shapes[0] = 0;
	table->shape_words = 1;
	return 0;
}

void unwind_rows_done(struct unwind_rows *rows)
{
	mem_free(UNWIND_MEM, rows->rule_slots);
	mem_free(UNWIND_MEM, rows->shape_slots);
	rows->rule_slots = NULL;
	rows->shape_slots = NULL;
}

size_t unwind_rows_scratch_bytes(const struct unwind_rows *rows)
{
	return sizeof(*rows) + RULE_SLOTS * sizeof(*rows->rule_slots) +
	       rows->shape_slot_count * sizeof(*rows->shape_slots);
}

static bool is_same(const struct fly_rule *a, const struct fly_rule *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static uint32_t mix(uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ (b * 0x9e3779b97f4a7c15ULL)) * 0xd6e8feb86659fd93ULL;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return (uint32_t)(h >> 32);
}

static bool fits(struct unwind_rows *rows)
{
	if (unwind_table_bytes(rows->table) <= rows->bytes_max)
		return true;
	rows->err = -ENOSPC;
	return false;
}

/* The number of a rule. A full dictionary still knows unsupported: it is put in early. */
static uint32_t find_rule(struct unwind_rows *rows, const struct fly_rule *rule)
{
	struct unwind_table *t = rows->table;
	uint32_t word[FLY_RULE_WORDS], slot;
	int err;

	if (is_same(rule, &t->rules[0]))
		return 0;
	memcpy(word, rule, sizeof(word));
	slot = mix(word[0] | (uint64_t)word[1] << 32, word[2]);
	for (;; slot++) {
		__u16 *at = &rows->rule_slots[slot % RULE_SLOTS];

		if (*at && is_same(&t->rules[*at], rule))
			return *at;
		if (*at)
			continue;
		if (t->rule_count >= FLY_RULES_MAX - 1 && !is_same(rule, &unsupported)) {
			t->stats.groups_degraded++;
			return find_rule(rows, &unsupported);
		}
		err = mem_grow(UNWIND_MEM, (void **)&t->rules, &rows->rules_cap, t->rule_count + 1,
			       FLY_RULES_MAX, sizeof(*t->rules));
		if (err) {
			rows->err = err;
			return 0;
		}
		t->rules[t->rule_count] = *rule;
		*at = (__u16)t->rule_count;
		return t->rule_count++;
	}
}

/* ------------------------------------------------------------------ shapes */

static void pack_shape(const __u16 *halves, uint32_t n, __u32 out[SHAPE_WORDS])
{
	memset(out, 0, SHAPE_WORDS * sizeof(*out));
	for (uint32_t i = 0; i < n; i++)
		out[i / 2] |= (__u32)halves[i] << (16 * (i & 1));
}

/* Whether the shape at a number is this one: same halves, and no more of them. */
static bool is_shape(const struct unwind_table *t, uint32_t at, const __u32 *words, uint32_t n)
{
	uint32_t count = (n + 1) / 2;

	if (memcmp(t->shapes + at, words, count * sizeof(*words)))
		return false;
	/* An odd one ends within its last word. Behind an even one a distance of 0 must follow. */
	return n & 1 || n == FLY_GROUP_ROWS || at + count >= t->shape_words ||
	       !(t->shapes[at + count] & (FLY_GROUP_UNITS - 1));
}

static uint32_t hash_shape(const __u32 words[SHAPE_WORDS])
{
	return mix(words[0] | (uint64_t)words[1] << 32, words[2] | (uint64_t)words[3] << 32);
}

/* Reads a shape back, for a larger hash table. */
static void read_shape(const struct unwind_table *t, uint32_t at, __u32 out[SHAPE_WORDS])
{
	__u16 halves[FLY_GROUP_ROWS];
	uint32_t n = 0;

	do {
		halves[n] = (__u16)(t->shapes[at + n / 2] >> (16 * (n & 1)));
		n++;
	} while (n < FLY_GROUP_ROWS && at + n / 2 < t->shape_words &&
		 t->shapes[at + n / 2] >> (16 * (n & 1)) & (FLY_GROUP_UNITS - 1));
	pack_shape(halves, n, out);
}

static int grow_slots(struct unwind_rows *rows)
{
	uint32_t count = rows->shape_slot_count * 2, slot;
	__u16 *slots = mem_array(UNWIND_MEM, count, sizeof(*slots));
	__u32 words[SHAPE_WORDS];

	if (!slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < rows->shape_slot_count; i++) {
		if (!rows->shape_slots[i])
			continue;
		read_shape(rows->table, rows->shape_slots[i], words);
		slot = hash_shape(words);
		while (slots[slot % count])
			slot++;
		slots[slot % count] = rows->shape_slots[i];
	}
	mem_free(UNWIND_MEM, rows->shape_slots);
	rows->shape_slots = slots;
	rows->shape_slot_count = count;
	return 0;
}

static uint32_t add_shape(struct unwind_rows *rows, const __u32 *words, uint32_t n, __u16 *slot)
{
	uint32_t count = (n + 1) / 2, at = rows->table->shape_words, left;
	struct unwind_table *t = rows->table;

	/* One word of 0 stays at the end of each run. */
	left = FLY_RUN_SHAPES - at % FLY_RUN_SHAPES;
	if (count + 1 > left)
		at += left;
	if (at + count + 1 > (n > 1 ? MANY_ROWS_SHAPES : FLY_SHAPES_MAX))
		return 0;
	rows->err = mem_grow(UNWIND_MEM, (void **)&t->shapes, &rows->shapes_cap, at + count + 1,
			     FLY_SHAPES_MAX, sizeof(*t->shapes));
	if (rows->err)
		return 0;
	while (t->shape_words < at)
		t->shapes[t->shape_words++] = 0;
	memcpy(t->shapes + at, words, count * sizeof(*words));
	t->shape_words = at + count;
	t->shape_count++;
	*slot = (__u16)at;
	if (t->shape_count * 2 > rows->shape_slot_count)
		rows->err = grow_slots(rows);
	return at;
}

/* The number of a shape; 0 when the dictionary is full. */
static uint32_t find_shape(struct unwind_rows *rows, const __u16 *halves, uint32_t n)
{
	__u32 words[SHAPE_WORDS];
	uint32_t slot;

	pack_shape(halves, n, words);
	slot = hash_shape(words);
	for (;; slot++) {
		__u16 *at = &rows->shape_slots[slot % rows->shape_slot_count];

		if (!*at)
			return add_shape(rows, words, n, at);
		if (is_shape(rows->table, *at, words, n))
			return *at;
	}
}

/* ------------------------------------------------------------------ groups and pages */

static __u64 *page_of(struct unwind_rows *rows, uint64_t address)
{
	return &rows->table->pages[(address - rows->table->start) >> FLY_PAGE_SHIFT];
}

static void add_group(struct unwind_rows *rows, uint64_t address, uint32_t shape)
{
	struct unwind_table *t = rows->table;
	size_t max = rows->bytes_max / sizeof(*t->groups) + 1;
	__u64 *page = page_of(rows, address);

	if (rows->err)
		return;
	rows->err = mem_grow(UNWIND_MEM, (void **)&t->groups, &rows->groups_cap, t->group_count + 1,
			     max, sizeof(*t->groups));
	if (rows->err || !fits(rows))
		return;
	t->groups[t->group_count++] = fly_group_make(address & (FLY_PAGE_BYTES - 1), shape);
	*page += fly_page_make(0, 1ULL, 0);
}

static void add_single(struct unwind_rows *rows, uint64_t address, uint32_t rule)
{
	__u16 half = fly_half_make(rule, 0);
	uint32_t shape;

	if (fly_page_count(*page_of(rows, address)) >= FLY_GROUPS_MAX - 1)
		return;
	/* The last one that fits covers the rest of the page. */
	if (fly_page_count(*page_of(rows, address)) == FLY_GROUPS_MAX - 2)
		half = fly_half_make(find_rule(rows, &unsupported), 0);
	shape = find_shape(rows, &half, 1);
	if (shape)
		add_group(rows, address, shape);
	else if (!rows->err)
		rows->err = -ENOSPC;
}

static void flush_group(struct unwind_rows *rows)
{
	uint32_t n = rows->group_rows, shape = 0;
	uint64_t at = rows->group_at;

	rows->group_rows = 0;
	if (!n || rows->err)
		return;
	if (fly_page_count(*page_of(rows, at)) < FLY_GROUPS_MAX - 2)
		shape = find_shape(rows, rows->halves, n);
	if (rows->err)
		return;
	if (shape) {
		add_group(rows, at, shape);
		return;
	}
	rows->table->stats.groups_degraded++;
	for (uint32_t i = 0; i < n && !rows->err; i++)
		add_single(rows,
			   at + ((uint64_t)(rows->halves[i] & (FLY_GROUP_UNITS - 1))
				 << rows->arch->scale),
			   rows->halves[i] >> 4);
}

/* Begins the pages up to this one: all start under the rule in force. */
static void begin_pages(struct unwind_rows *rows, uint32_t page)
{
	struct unwind_table *t = rows->table;

	for (; rows->page <= page; rows->page++)
		t->pages[rows->page] = fly_page_make(t->group_count, 0ULL, rows->rule);
}

static void add_half(struct unwind_rows *rows, uint64_t address, uint32_t rule)
{
	uint32_t page = (uint32_t)((address - rows->table->start) >> FLY_PAGE_SHIFT);
	uint64_t away = (address - rows->group_at) >> rows->arch->scale;
	uint64_t rest = (address - rows->group_at) & ((1U << rows->arch->scale) - 1);

	if (!rows->group_rows || rows->group_rows == FLY_GROUP_ROWS || away >= FLY_GROUP_UNITS ||
	    rest || page >= rows->page) {
		flush_group(rows);
		begin_pages(rows, page);
		rows->group_at = address;
		away = 0;
	}
	rows->halves[rows->group_rows++] = fly_half_make(rule, away);
}

/* ------------------------------------------------------------------ rows */

/* The register that a rule needs besides SP and FP, 0: none (rax and x0 are never callee-saved). */
static uint8_t needs(const struct unwind_arch *arch, const struct fly_rule *r)
{
	if ((r->cfa != FLY_CFA_REG && r->cfa != FLY_CFA_DEREF) || r->cfa_reg == arch->sp ||
	    r->cfa_reg == arch->fp)
		return 0;
	return r->cfa_reg;
}

static bool is_callee_saved(const struct unwind_arch *arch, uint8_t reg)
{
	return reg < 32 && arch->callee_saved >> reg & 1;
}

static bool is_lost(const struct unwind_rows *rows, const struct fly_rule *r)
{
	uint8_t reg = needs(rows->arch, r);

	if (r->cfa == FLY_CFA_UNSUPPORTED || (r->fp & FLY_FP_MASK) == FLY_FP_LOST)
		return true;
	return is_callee_saved(rows->arch, reg) && reg != rows->table->tracked;
}

static bool is_leaf_only(const struct unwind_arch *arch, const struct fly_rule *r)
{
	return ((r->cfa == FLY_CFA_REG || r->cfa == FLY_CFA_DEREF) && r->cfa_reg != arch->sp &&
		r->cfa_reg != arch->fp) ||
	       r->cfa == FLY_CFA_INDEXED || (r->ra && r->ra != (FLY_RA_IN_REG | FLY_AARCH64_LR));
}

static void count_row(struct unwind_rows *rows, const struct fly_rule *rule)
{
	struct unwind_stats *s = &rows->table->stats;
	uint8_t reg = needs(rows->arch, rule);

	s->rows++;
	if (is_callee_saved(rows->arch, reg))
		rows->needed[reg]++;
	if (rule->cfa == FLY_CFA_NONE)
		s->rows_gap++;
	else if (is_lost(rows, rule))
		s->rows_unsupported++;
	else if (reg && reg == rows->table->tracked)
		s->rows_tracked++;
	else if (is_leaf_only(rows->arch, rule))
		s->rows_leaf_only++;
}

/* Text that was under the rule in force so far. */
static void count_text(struct unwind_rows *rows, uint64_t until)
{
	const struct fly_rule *rule = &rows->table->rules[rows->rule];
	struct unwind_stats *s = &rows->table->stats;

	if (rule->cfa == FLY_CFA_NONE)
		return;
	if (is_lost(rows, rule))
		s->unsupported_bytes += until - rows->said_at;
	if (rule->cfa != FLY_CFA_UNSUPPORTED)
		s->covered_bytes += until - rows->said_at;
}

static void commit_row(struct unwind_rows *rows)
{
	uint32_t rule;

	if (!rows->has_row || rows->err)
		return;
	rows->has_row = false;
	if (is_same(&rows->row_rule, &rows->table->rules[rows->rule]))
		return;
	rule = find_rule(rows, &rows->row_rule);
	if (rows->err || rule == rows->rule)
		return;
	count_text(rows, rows->row_at);
	count_row(rows, &rows->table->rules[rule]);
	add_half(rows, rows->row_at, rule);
	rows->rule = rule;
	rows->said_at = rows->row_at;
}

static void add_row(struct unwind_rows *rows, uint64_t address, const struct fly_rule *rule)
{
	if (rows->has_row && address > rows->row_at)
		commit_row(rows);
	rows->has_row = true;
	rows->row_at = address;
	rows->row_rule = *rule;
}

/* Nothing is known from the end of the function before. */
static void add_gap(struct unwind_rows *rows)
{
	static const struct fly_rule none;

	add_row(rows, rows->end, &none);
}

void unwind_rows_function(struct unwind_rows *rows, uint64_t start, uint64_t end)
{
	if (rows->has_end && start > rows->end && start - rows->end > UNWIND_PADDING)
		add_gap(rows);
	rows->end = end;
	rows->has_end = true;
}

void unwind_rows_row(void *ctx, uint64_t address, const struct fly_rule *rule)
{
	struct unwind_rows *rows = ctx;

	rows->table->stats.rows_raw++;
	if (address < rows->end)
		add_row(rows, address, rule);
}

static int trim(void **items, size_t count, size_t item_bytes)
{
	void *p = mem_resize(UNWIND_MEM, *items, count * item_bytes);

	if (!p)
		return -ENOMEM;
	*items = p;
	return 0;
}

int unwind_rows_finish(struct unwind_rows *rows)
{
	struct unwind_table *t = rows->table;

	if (rows->has_end && (rows->end - t->start) >> FLY_PAGE_SHIFT < t->page_count)
		add_gap(rows);
	commit_row(rows);
	count_text(rows, rows->end);
	flush_group(rows);
	begin_pages(rows, t->page_count - 1);
	if (rows->err)
		return rows->err;
	rows->err = trim((void **)&t->rules, t->rule_count, sizeof(*t->rules));
	/* A 0 ends the last shape; a look-up reads a whole shape's room at any number. */
	if (!rows->err)
		rows->err = trim((void **)&t->shapes, t->shape_words + 1 + UNWIND_SHAPE_ROOM,
				 sizeof(*t->shapes));
	if (!rows->err)
		memset(t->shapes + t->shape_words, 0, (1 + UNWIND_SHAPE_ROOM) * sizeof(*t->shapes));
	t->shape_words++;
	if (!rows->err && t->group_count)
		rows->err = trim((void **)&t->groups, t->group_count, sizeof(*t->groups));
	return rows->err;
}
