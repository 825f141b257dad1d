// SPDX-License-Identifier: Apache-2.0
/* tables: numbers of files, answers, time. See tables.h. */
#include "tables/tables_private.h"

#include <errno.h>
#include <string.h>

int tables_new(const struct tables_options *options, struct tables **ret)
{
	struct tables *t = mem_alloc(MEM_TABLES, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	t->opt = *options;
	if (!t->opt.processes_max)
		t->opt.processes_max = TABLES_PROCESSES;
	if (!t->opt.ttl_ns)
		t->opt.ttl_ns = TABLES_TTL_NS;
	if (!t->opt.copy_bytes_max)
		t->opt.copy_bytes_max = TABLES_COPY_BYTES;
	t->slots_high = TABLES_FIRST;
	t->slots = mem_array(MEM_TABLES, FLY_TABLES_MAX, sizeof(*t->slots));
	err = t->slots ? tables_space_init(&t->space, &options->calls, options->bytes_max)
		       : -ENOMEM;
	if (err) {
		tables_free(t);
		return err;
	}
	*ret = t;
	return 0;
}

void tables_free(struct tables *t)
{
	struct tables_file *file, *next;

	if (!t)
		return;
	tables_processes_free(t);
	HASH_ITER (hh, t->files, file, next) {
		HASH_DEL(t->files, file);
		mem_free(MEM_TABLES, file);
	}
	for (uint32_t i = 0; t->slots && i < FLY_TABLES_MAX; i++) {
		tables_copy_free(t, &t->slots[i]);
		mem_free(MEM_TABLES, t->slots[i].pages);
	}
	tables_space_done(&t->space);
	mem_free(MEM_TABLES, t->slots);
	mem_free(MEM_TABLES, t);
}

/* ---------------------------------------------------------------- numbers */
static struct tables_file *file_get(const struct tables *t, uint64_t key)
{
	struct tables_file *file;

	HASH_FIND(hh, t->files, &key, sizeof(key), file);
	return file;
}

static uint32_t free_number(struct tables *t)
{
	for (uint32_t i = TABLES_FIRST; i < FLY_TABLES_MAX; i++) {
		if (t->slots[i].state != TABLES_FREE)
			continue;
		if (i >= t->slots_high)
			t->slots_high = i + 1;
		return i;
	}
	return FLY_TABLE_NONE;
}

uint32_t tables_number(struct tables *t, uint64_t key)
{
	struct tables_file *file = file_get(t, key);
	uint32_t number;

	if (file)
		return file->number;
	number = free_number(t);
	if (number == FLY_TABLE_NONE) {
		t->stats.numbers_short++;
		return number;
	}
	file = mem_alloc(MEM_TABLES, sizeof(*file));
	if (!file)
		return FLY_TABLE_NONE;
	file->key = key;
	file->number = number;
	HASH_ADD(hh, t->files, key, sizeof(file->key), file);
	if (file->is_oom) {
		mem_free(MEM_TABLES, file);
		return FLY_TABLE_NONE;
	}
	t->slots[number] = (struct tables_slot){.state = TABLES_UNKNOWN, .key = key, .keys = 1};
	__atomic_store_n(&t->opt.published[number].serial, ++t->serial, __ATOMIC_RELEASE);
	return number;
}

/* Nobody maps it, nobody names it. Its number is free when walks that hold it have ended. */
static void number_leave(struct tables *t, uint32_t number)
{
	struct tables_slot *slot = &t->slots[number];

	__atomic_store_n(&t->opt.published[number].serial, 0, __ATOMIC_RELEASE);
	tables_slot_clear(t, number);
	slot->state = TABLES_LEAVING;
	slot->left_waits = t->space.waits;
	t->leaving++;
}

static void number_expire(struct tables *t, uint32_t number)
{
	struct tables_file *file, *next;

	if (t->slots[number].keys) {
		HASH_ITER (hh, t->files, file, next) {
			if (file->number != number)
				continue;
			HASH_DEL(t->files, file);
			mem_free(MEM_TABLES, file);
		}
	}
	number_leave(t, number);
	t->stats.expired++;
}

/* ---------------------------------------------------------------- samples */
void tables_frame(struct tables *t, uint64_t key, uint64_t vaddr, uint64_t now_ns)
{
	struct tables_file *file = file_get(t, key);
	struct tables_slot *slot;
	uint64_t page;

	(void)now_ns;
	if (!file)
		return;
	slot = &t->slots[file->number];
	tables_heat_add(&slot->heat, TABLES_HIT);
	if (slot->state != TABLES_KNOWN)
		return;
	if (!slot->is_held)
		slot->is_wanting = true;
	page = (vaddr - slot->start) >> FLY_PAGE_SHIFT;
	if (vaddr < slot->start || page >= slot->page_count)
		return;
	tables_heat_add(&slot->pages[page].heat, TABLES_HIT);
	if (tables_page_is_absent(&slot->pages[page]))
		slot->is_wanting = true;
}

void tables_page_absent(struct tables *t, uint32_t number, uint32_t page, uint64_t now_ns)
{
	struct tables_slot *slot;

	(void)now_ns;
	if (!tables_is_number(number))
		return;
	slot = &t->slots[number];
	if (slot->state != TABLES_KNOWN || page >= slot->page_count)
		return;
	tables_heat_add(&slot->pages[page].heat, TABLES_HIT);
	/* It may have come since the walk. */
	if (!slot->is_held || tables_page_is_absent(&slot->pages[page]))
		slot->is_wanting = true;
}

/* ---------------------------------------------------------------- asking */
static bool is_to_be_made(const struct tables *t, const struct tables_slot *slot)
{
	uint32_t words = tables_slot_frame_words(slot);

	if (slot->is_asked || !slot->heat)
		return false;
	switch (slot->state) {
	case TABLES_UNKNOWN:
		return true;
	case TABLES_REFUSED:
		return slot->refusal == TABLES_REFUSED_UNREADABLE && t->now_ns >= slot->retry_ns;
	case TABLES_KNOWN:
		if (slot->copy || !slot->is_wanting || tables_slot_is_whole(slot))
			return false;
		return tables_space_free_units(&t->space) >= 2 * tables_space_units(words) ||
		       tables_value(slot->heat, words) > 2 * t->bar;
	default:
		return false;
	}
}

bool tables_want(struct tables *t, uint64_t *ret_key)
{
	struct tables_slot *hottest = NULL;

	for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
		struct tables_slot *slot = &t->slots[i];

		if (is_to_be_made(t, slot) && (!hottest || slot->heat > hottest->heat))
			hottest = slot;
	}
	if (!hottest)
		return false;
	hottest->is_asked = true;
	*ret_key = hottest->key;
	return true;
}

static bool is_content(const struct tables_slot *slot, const struct tables_content *content)
{
	return slot->state == TABLES_KNOWN && slot->build_id_len == content->build_id_len &&
	       memcmp(slot->build_id, content->build_id, content->build_id_len) == 0 &&
	       memcmp(slot->hash, content->hash, sizeof(slot->hash)) == 0 &&
	       slot->start == content->table->start &&
	       slot->page_count == content->table->page_count;
}

/* The file has the content of another number: that one is for both. */
static void share(struct tables *t, uint32_t from, uint32_t to)
{
	struct tables_file *file, *next;

	tables_maps_rename(t, from, to);
	HASH_ITER (hh, t->files, file, next) {
		if (file->number != from)
			continue;
		file->number = to;
		t->slots[from].keys--;
		t->slots[to].keys++;
	}
	tables_heat_add(&t->slots[to].heat, t->slots[from].heat);
	t->slots[to].key = t->slots[from].key;
	number_leave(t, from);
	t->stats.shared++;
}

static int learn(struct tables_slot *slot, const struct tables_content *content)
{
	const struct unwind_table *table = content->table;
	struct tables_page *pages = mem_array(MEM_TABLES, table->page_count, sizeof(*pages));

	if (!pages)
		return -ENOMEM;
	for (uint32_t i = 0; i < table->page_count; i++)
		pages[i] = (struct tables_page){
			.at = TABLES_NOWHERE,
			.count = (uint16_t)fly_page_count(table->pages[i]),
			.before = (uint16_t)fly_page_before(table->pages[i]),
		};
	mem_free(MEM_TABLES, slot->pages);
	slot->pages = pages;
	slot->state = TABLES_KNOWN;
	slot->build_id_len = content->build_id_len;
	memcpy(slot->build_id, content->build_id, content->build_id_len);
	memcpy(slot->hash, content->hash, sizeof(slot->hash));
	slot->start = table->start;
	slot->machine = table->machine;
	slot->scale = table->scale;
	slot->tracked = table->tracked;
	slot->page_count = table->page_count;
	slot->group_count = table->group_count;
	slot->shape_words = table->shape_words;
	slot->shape_count = table->shape_count;
	slot->rule_count = table->rule_count;
	return 0;
}

static bool is_usable(const struct tables_content *content)
{
	const struct unwind_table *table = content->table;

	return table->page_count <= FLY_PAGES_MAX && table->rule_count <= FLY_RULES_MAX &&
	       table->shape_words <= FLY_SHAPES_MAX &&
	       content->build_id_len <= TABLES_BUILD_ID_MAX &&
	       unwind_table_bytes(table) <= TABLES_TABLE_BYTES_MAX;
}

static void refuse(struct tables *t, uint32_t number, enum tables_refusal refusal, uint64_t now_ns)
{
	struct tables_slot *slot = &t->slots[number];

	tables_slot_clear(t, number);
	slot->is_asked = slot->is_wanting = false;
	slot->refusal = (uint8_t)refusal;
	slot->retry_ns = now_ns + TABLES_RETRY_NS;
	slot->state = refusal == TABLES_REFUSED_NO_CFI ? TABLES_BARE : TABLES_REFUSED;
	if (slot->state == TABLES_BARE)
		tables_slot_publish_bare(t, number);
}

static uint32_t number_of_content(const struct tables *t, uint32_t but,
				  const struct tables_content *content)
{
	for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
		if (i != but && is_content(&t->slots[i], content))
			return i;
	}
	return FLY_TABLE_NONE;
}

int tables_arrived(struct tables *t, uint64_t key, const struct tables_content *content,
		   uint64_t now_ns)
{
	struct tables_file *file = file_get(t, key);
	struct tables_slot *slot;
	uint32_t number, other;
	int err;

	if (!file)
		return 0; /* given up meanwhile */
	number = file->number;
	t->slots[number].is_asked = false;
	t->stats.built++;
	if (!content->table->page_count || !content->table->rule_count) {
		refuse(t, number, TABLES_REFUSED_NO_CFI, now_ns); /* of no function */
		return 0;
	}
	if (!is_usable(content)) {
		refuse(t, number, TABLES_REFUSED_TOO_LARGE, now_ns);
		return 0;
	}
	other = number_of_content(t, number, content);
	if (other != FLY_TABLE_NONE) {
		share(t, number, other);
		number = other;
	}
	slot = &t->slots[number];
	if (!is_content(slot, content)) {
		/* Also a file that was written over: what was made of it is of no use. */
		tables_slot_clear(t, number);
		err = learn(slot, content);
		if (err) {
			refuse(t, number, TABLES_REFUSED_UNREADABLE, now_ns);
			return err;
		}
	}
	if (tables_slot_frame_words(slot) * sizeof(__u32) > t->opt.bytes_max / 2) {
		refuse(t, number, TABLES_REFUSED_TOO_LARGE, now_ns);
		return 0;
	}
	if (tables_slot_is_whole(slot))
		return 0;
	tables_copy_free(t, slot);
	err = tables_copy_new(content->table, now_ns, &slot->copy);
	if (err)
		return err;
	t->stats.copy_bytes += slot->copy->bytes;
	slot->is_wanting = true;
	tables_room_copies(t);
	if (t->stats.copy_bytes > t->stats.copy_peak)
		t->stats.copy_peak = t->stats.copy_bytes;
	return 0;
}

const char *tables_refusal_text(enum tables_refusal refusal)
{
	static const char *const texts[TABLES_REFUSALS] = {
		[TABLES_REFUSED_NO_CFI] = "no call frame information",
		[TABLES_REFUSED_DAMAGED] = "damaged",
		[TABLES_REFUSED_TOO_LARGE] = "too large",
		[TABLES_REFUSED_UNSUPPORTED] = "not supported",
		[TABLES_REFUSED_UNREADABLE] = "not readable",
	};

	return refusal < TABLES_REFUSALS ? texts[refusal] : "";
}

void tables_refused(struct tables *t, uint64_t key, enum tables_refusal refusal, uint64_t now_ns)
{
	struct tables_file *file = file_get(t, key);

	if (!file)
		return;
	/* What is held already serves on. */
	if (t->slots[file->number].state == TABLES_KNOWN && t->slots[file->number].is_held) {
		t->slots[file->number].is_asked = t->slots[file->number].is_wanting = false;
		return;
	}
	refuse(t, file->number, refusal, now_ns);
}

/* ---------------------------------------------------------------- time */
static void halve(struct tables *t)
{
	struct tables_process *p, *next;

	for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
		struct tables_slot *slot = &t->slots[i];

		slot->heat /= 2;
		for (uint32_t page = 0; page < slot->page_count; page++)
			slot->pages[page].heat /= 2;
	}
	HASH_ITER (hh, t->processes, p, next) {
		p->heat /= 2;
		/* What was only remembered is forgotten when it is cold. */
		if (!p->maps && !p->heat)
			tables_process_remove(t, p->tgid);
	}
}

static void look_at_numbers(struct tables *t, uint64_t now_ns)
{
	for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
		struct tables_slot *slot = &t->slots[i];

		if (slot->state == TABLES_FREE)
			continue;
		if (slot->state == TABLES_LEAVING) {
			if (t->space.waits > slot->left_waits) {
				slot->state = TABLES_FREE;
				t->leaving--;
			}
			continue;
		}
		if (slot->references || slot->is_asked) {
			slot->unused_ns = 0;
			continue;
		}
		if (!slot->unused_ns)
			slot->unused_ns = now_ns;
		else if (now_ns >= slot->unused_ns + t->opt.ttl_ns)
			number_expire(t, i);
	}
}

void tables_tick(struct tables *t, uint64_t now_ns)
{
	uint64_t bytes;

	t->now_ns = now_ns;
	if (!t->half_ns)
		t->half_ns = t->settle_ns = now_ns;
	for (; now_ns >= t->half_ns + TABLES_HALF_NS; t->half_ns += TABLES_HALF_NS)
		halve(t);
	look_at_numbers(t, now_ns);
	tables_room_serve(t, now_ns);
	bytes = (uint64_t)t->space.segment_count * FLY_SEGMENT_BYTES;
	if (bytes > t->stats.bytes_peak)
		t->stats.bytes_peak = bytes;
	tables_room_give_back(t, now_ns);
}

void tables_stats_get(const struct tables *t, struct tables_stats *ret)
{
	const uint64_t unit_bytes = TABLES_UNIT_WORDS * sizeof(__u32);

	*ret = t->stats;
	ret->bytes_max = (uint64_t)t->space.segments_max * FLY_SEGMENT_BYTES;
	ret->bytes = (uint64_t)t->space.segment_count * FLY_SEGMENT_BYTES;
	ret->used_bytes = t->space.used_units * unit_bytes;
	ret->table_bytes = t->table_units * unit_bytes;
	ret->mapping_bytes = t->mapping_units * unit_bytes;
	ret->processes = t->process_count;
	ret->waits = t->space.waits;
	ret->segments_failed = t->space.failed;
	for (uint32_t i = TABLES_FIRST; i < t->slots_high; i++) {
		const struct tables_slot *slot = &t->slots[i];

		if (slot->state == TABLES_FREE || slot->state == TABLES_LEAVING)
			continue;
		ret->numbers++;
		if (slot->state == TABLES_BARE || slot->state == TABLES_REFUSED)
			ret->refused[slot->refusal]++;
		if (tables_slot_is_whole(slot))
			ret->held++;
		else if (slot->is_held)
			ret->held_in_part++;
	}
}
