// SPDX-License-Identifier: Apache-2.0
/* Answers: a head, then by kind an elf_info, names, lines, a table, or a scan. Strings are stored
 * as length and bytes with a NUL. The check reads through a cursor that cannot leave the buffer,
 * wants every string to end exactly at its NUL, and every byte of the answer to be used. */
#include "helpers_answer.h"

#include "abi/reasons.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX 1024 /* SYMBOL_NAME_MAX */

struct head {
	uint32_t op;
	int32_t err;
	uint32_t unnamed, count;
};

struct name_head {
	uint64_t vaddr, start;
	uint32_t unnamed, bytes;
};

/* Lines: the head's count is of addresses. This follows, then the texts as strings, then for each
 * address a line_head and its frames. */
struct lines_head {
	uint32_t text_count, frame_count;
};

struct line_head {
	uint64_t vaddr;
	uint32_t unnamed, frame_count;
};

struct frame_body {
	uint32_t function, file; /* texts by number */
	uint32_t line;
};

/* Pages, groups, shapes and rules follow, without gaps. */
struct table_head {
	uint64_t start, info_offset, info_bytes, info_address;
	uint32_t page_count, group_count, shape_words, rule_count, shape_count;
	uint16_t machine;
	uint8_t scale, found;
	uint32_t tracked, pad;
	uint8_t hash[32];
	struct unwind_stats stats;
};

struct scan_head {
	uint64_t process_start_ns;
	uint32_t tgid, namespace_pid, uid, mount_namespace;
	uint32_t is_cut, pad;
};

struct mapping_head {
	uint64_t start, end, pgoff, ino;
	uint32_t dev_major, dev_minor;
	uint32_t is_deleted, bytes;
};

struct context_head {
	uint64_t published_ns, module;
	int64_t offset;
	uint32_t state, dtv_entry_bytes, key_count, pad;
};

static void add_string(struct buf *out, const char *s)
{
	uint32_t bytes = (uint32_t)strlen(s) + 1;

	buf_add(out, &bytes, sizeof(bytes));
	buf_add(out, s, bytes);
}

static void add_head(struct buf *out, uint32_t op, int err, uint32_t unnamed, size_t count,
		     const char *text)
{
	struct head head = {op, err, unnamed, (uint32_t)count};

	buf_add(out, &head, sizeof(head));
	add_string(out, text);
}

void helpers_answer_error(struct buf *out, uint32_t op, int err, uint32_t unnamed, const char *text)
{
	char clean[WIRE_TEXT_MAX];

	text_print(text, strlen(text), clean, sizeof(clean));
	add_head(out, op, err, unnamed, 0, clean);
}

void helpers_answer_info(struct buf *out, uint32_t op, const struct elf_info *info)
{
	add_head(out, op, 0, 0, 1, "");
	buf_add(out, info, sizeof(*info));
}

void helpers_answer_digest(struct buf *out, uint32_t op, const uint8_t digest[ELF_BLAKE2B_BYTES])
{
	add_head(out, op, 0, 0, 1, "");
	buf_add(out, digest, ELF_BLAKE2B_BYTES);
}

void helpers_answer_names(struct buf *out, uint32_t op, const struct helpers_name *names,
			  size_t count)
{
	add_head(out, op, 0, 0, count, "");
	for (size_t i = 0; i < count; i++) {
		struct name_head head = {.vaddr = names[i].vaddr,
					 .start = names[i].start,
					 .unnamed = names[i].unnamed,
					 .bytes = (uint32_t)strlen(names[i].name) + 1};

		buf_add(out, &head, sizeof(head));
		buf_add(out, names[i].name, head.bytes);
	}
}

void helpers_answer_debug(struct buf *out, bool is_stripped, const char *link)
{
	char clean[WIRE_TEXT_MAX];
	uint32_t flag = is_stripped;

	/* One that is not printable is of nobody's making but to lead astray. */
	text_print(link, strlen(link), clean, sizeof(clean));
	buf_add(out, &flag, sizeof(flag));
	add_string(out, strcmp(link, clean) ? "" : link);
}

void helpers_answer_context(struct buf *out, const struct helpers_context *context,
			    const char *text)
{
	struct context_head head = {
		.published_ns = context->published_ns,
		.module = context->place.module,
		.offset = context->place.offset,
		.state = context->state,
		.dtv_entry_bytes = context->dtv_entry_bytes,
		.key_count = (uint32_t)context->key_count,
	};

	add_head(out, WIRE_CONTEXT, 0, 0, context->attribute_count, text);
	buf_add(out, &head, sizeof(head));
	for (size_t i = 0; i < context->attribute_count; i++) {
		add_string(out, context->attributes[i][0]);
		add_string(out, context->attributes[i][1]);
	}
	for (size_t i = 0; i < context->key_count; i++)
		add_string(out, context->keys[i]);
}

void helpers_answer_scan(struct buf *out, const struct helpers_scan *scan)
{
	struct scan_head head = {
		.process_start_ns = scan->process_start_ns,
		.tgid = scan->tgid,
		.namespace_pid = scan->namespace_pid,
		.uid = scan->uid,
		.mount_namespace = scan->mount_namespace,
		.is_cut = scan->is_cut,
	};

	add_head(out, WIRE_SCAN, 0, 0, scan->mapping_count, "");
	buf_add(out, &head, sizeof(head));
	add_string(out, scan->comm);
	add_string(out, scan->exe);
	add_string(out, scan->cgroup);
	for (size_t i = 0; i < scan->mapping_count; i++) {
		const struct helpers_mapping *m = &scan->mappings[i];
		struct mapping_head map = {
			.start = m->start,
			.end = m->end,
			.pgoff = m->pgoff,
			.ino = m->ino,
			.dev_major = m->dev_major,
			.dev_minor = m->dev_minor,
			.is_deleted = m->is_deleted,
			.bytes = (uint32_t)strlen(m->path) + 1,
		};

		buf_add(out, &map, sizeof(map));
		buf_add(out, m->path, map.bytes);
	}
}

static uint32_t unlined_of(uint32_t state)
{
	switch (state) {
	case SYMBOL_FRAMES_FOUND:
		return FLY_UNNAMED_NONE;
	case SYMBOL_FRAMES_NOT_REACHED:
		return FLY_UNNAMED_LINES_TIME;
	case SYMBOL_FRAMES_TOO_LARGE:
		return FLY_UNNAMED_LINES_LIMIT;
	default:
		return FLY_UNNAMED_NO_LINES;
	}
}

void helpers_answer_lines(struct buf *out, uint32_t op, const struct symbol_frames *frames,
			  const char *supplement)
{
	struct lines_head head = {.text_count = strings_count(frames->strings)};

	for (size_t i = 0; i < frames->count; i++) {
		if (frames->answers[i].state == SYMBOL_FRAMES_FOUND)
			head.frame_count += frames->answers[i].count;
	}
	add_head(out, op, 0, 0, frames->count, supplement);
	buf_add(out, &head, sizeof(head));
	for (uint32_t i = 0; i < head.text_count; i++)
		add_string(out, strings_get(frames->strings, i));
	for (size_t i = 0; i < frames->count; i++) {
		const struct symbol_frames_answer *a = &frames->answers[i];
		struct line_head line = {.vaddr = a->address, .unnamed = unlined_of(a->state)};

		line.frame_count = line.unnamed ? 0 : a->count;
		buf_add(out, &line, sizeof(line));
		for (uint32_t k = 0; k < line.frame_count; k++) {
			const struct symbol_frame *f = &frames->frames[a->first + k];
			struct frame_body body = {f->function, f->file, f->line};

			buf_add(out, &body, sizeof(body));
		}
	}
}

void helpers_answer_table(struct buf *out, uint32_t op, const struct unwind_table *t,
			  const uint8_t hash[32])
{
	struct table_head head = {
		.start = t->start,
		.info_offset = t->info_offset,
		.info_bytes = t->info_bytes,
		.info_address = t->info_address,
		.page_count = t->page_count,
		.group_count = t->group_count,
		.shape_words = t->shape_words,
		.rule_count = t->rule_count,
		.shape_count = t->shape_count,
		.machine = t->machine,
		.scale = t->scale,
		.found = t->found,
		.tracked = t->tracked,
		.stats = t->stats,
	};

	memcpy(head.hash, hash, sizeof(head.hash));
	add_head(out, op, 0, 0, 1, "");
	buf_add(out, &head, sizeof(head));
	buf_add(out, t->pages, t->page_count * sizeof(*t->pages));
	buf_add(out, t->groups, t->group_count * sizeof(*t->groups));
	buf_add(out, t->shapes, t->shape_words * sizeof(*t->shapes));
	buf_add(out, t->rules, t->rule_count * sizeof(*t->rules));
}

/* ------------------------------------------------------------------ checking */

struct cursor {
	const char *at;
	size_t left;
	bool is_bad;
};

static void take(struct cursor *c, void *out, size_t bytes)
{
	if (c->is_bad || bytes > c->left) {
		c->is_bad = true;
		memset(out, 0, bytes);
		return;
	}
	memcpy(out, c->at, bytes);
	c->at += bytes;
	c->left -= bytes;
}

/* bytes counts the NUL. */
static const char *take_bytes(struct cursor *c, uint32_t bytes, size_t max)
{
	const char *s = c->at;

	if (c->is_bad || !bytes || bytes > max || bytes > c->left ||
	    memchr(s, 0, bytes) != s + bytes - 1) {
		c->is_bad = true;
		return "";
	}
	c->at += bytes;
	c->left -= bytes;
	return s;
}

static const char *take_string(struct cursor *c, size_t max)
{
	uint32_t bytes;

	take(c, &bytes, sizeof(bytes));
	return take_bytes(c, bytes, max);
}

/* Names and reasons are printed by main: they must come clean. */
static bool is_clean(const char *s)
{
	char clean[NAME_BYTES_MAX];

	text_print(s, strlen(s), clean, sizeof(clean));
	return !strcmp(s, clean);
}

static int names_check(struct cursor *c, size_t count, const uint64_t *asked,
		       struct helpers_answer *ret)
{
	ret->names = mem_array(MEM_HELPERS, count, sizeof(*ret->names));
	if (!ret->names)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct name_head head;
		const char *name;

		take(c, &head, sizeof(head));
		name = take_bytes(c, head.bytes, NAME_BYTES_MAX);
		if (c->is_bad || head.vaddr != asked[i] || head.unnamed >= FLY_UNNAMED_COUNT ||
		    !is_clean(name) || (!head.unnamed) != (name[0] != 0) ||
		    (!head.unnamed && head.start > head.vaddr))
			return -EBADMSG;
		ret->names[i] = (struct helpers_name){head.vaddr, head.unnamed, head.start, name};
	}
	ret->result.names = ret->names;
	ret->result.name_count = count;
	return 0;
}

static int debug_check(struct cursor *c, struct helpers_answer *ret)
{
	uint32_t flag;

	take(c, &flag, sizeof(flag));
	ret->result.debug_link = take_string(c, WIRE_TEXT_MAX);
	ret->result.is_stripped = flag;
	return c->is_bad || flag > 1 || !is_clean(ret->result.debug_link) ||
			       strchr(ret->result.debug_link, '/')
		       ? -EBADMSG
		       : 0;
}

/* Counts come from the answer: each is worth bytes that must still be there. */
static int lines_check_head(struct cursor *c, struct lines_head *head, struct helpers_answer *ret)
{
	take(c, head, sizeof(*head));
	if (c->is_bad || head->text_count > c->left / (sizeof(uint32_t) + 1) ||
	    head->frame_count > c->left / sizeof(struct frame_body))
		return -EBADMSG;
	ret->texts = mem_array(MEM_HELPERS, head->text_count, sizeof(*ret->texts));
	ret->frames = mem_array(MEM_HELPERS, head->frame_count, sizeof(*ret->frames));
	if (!ret->texts || !ret->frames)
		return -ENOMEM;
	for (uint32_t i = 0; i < head->text_count; i++) {
		ret->texts[i] = take_string(c, NAME_BYTES_MAX);
		if (c->is_bad || !is_clean(ret->texts[i]))
			return -EBADMSG;
	}
	return 0;
}

static int line_check(struct cursor *c, const struct lines_head *head, uint32_t *first,
		      uint64_t asked, struct helpers_answer *ret, struct helpers_line *line)
{
	struct line_head h;

	take(c, &h, sizeof(h));
	if (c->is_bad || h.vaddr != asked || h.unnamed >= FLY_UNNAMED_COUNT ||
	    h.frame_count > HELPERS_FRAMES_MAX || !h.unnamed != (h.frame_count > 0) ||
	    h.frame_count > head->frame_count - *first)
		return -EBADMSG;
	*line = (struct helpers_line){h.vaddr, h.unnamed, h.frame_count, ret->frames + *first};
	for (uint32_t i = 0; i < h.frame_count; i++) {
		struct frame_body body;

		take(c, &body, sizeof(body));
		if (c->is_bad || body.function >= head->text_count || body.file >= head->text_count)
			return -EBADMSG;
		ret->frames[(*first)++] = (struct helpers_frame){ret->texts[body.function],
								 ret->texts[body.file], body.line};
	}
	return 0;
}

static int lines_check(struct cursor *c, size_t count, const uint64_t *asked,
		       struct helpers_answer *ret)
{
	struct lines_head head;
	uint32_t first = 0;
	int err = lines_check_head(c, &head, ret);

	if (err)
		return err;
	ret->lines = mem_array(MEM_HELPERS, count, sizeof(*ret->lines));
	if (!ret->lines)
		return -ENOMEM;
	for (size_t i = 0; !err && i < count; i++)
		err = line_check(c, &head, &first, asked[i], ret, &ret->lines[i]);
	ret->result.lines = ret->lines;
	ret->result.line_count = count;
	return !err && first != head.frame_count ? -EBADMSG : err;
}

static int scan_check(struct cursor *c, size_t count, uint32_t tgid, struct helpers_answer *ret)
{
	struct scan_head head;
	uint64_t last = 0;

	take(c, &head, sizeof(head));
	if (head.tgid != tgid || head.is_cut > 1 || count > HELPERS_MAPPINGS_MAX)
		return -EBADMSG;
	ret->scan = (struct helpers_scan){
		.tgid = head.tgid,
		.namespace_pid = head.namespace_pid,
		.uid = head.uid,
		.process_start_ns = head.process_start_ns,
		.mount_namespace = head.mount_namespace,
		.mapping_count = count,
		.is_cut = head.is_cut,
	};
	ret->scan.comm = take_string(c, WIRE_COMM_MAX);
	ret->scan.exe = take_string(c, WIRE_PATH_MAX);
	ret->scan.cgroup = take_string(c, WIRE_CGROUP_MAX + 1);
	ret->mappings = mem_array(MEM_HELPERS, count, sizeof(*ret->mappings));
	if (!ret->mappings)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct mapping_head m;
		const char *path;

		take(c, &m, sizeof(m));
		path = take_bytes(c, m.bytes, WIRE_PATH_MAX);
		if (c->is_bad || m.start < last || m.end <= m.start || m.is_deleted > 1)
			return -EBADMSG;
		last = m.end;
		ret->mappings[i] = (struct helpers_mapping){
			.start = m.start,
			.end = m.end,
			.pgoff = m.pgoff,
			.ino = m.ino,
			.dev_major = m.dev_major,
			.dev_minor = m.dev_minor,
			.path = path,
			.is_deleted = m.is_deleted,
		};
	}
	ret->scan.mappings = ret->mappings;
	ret->result.scan = &ret->scan;
	return 0;
}

static bool is_place_good(const struct context_head *head)
{
	if (head->state != HELPERS_CONTEXT_FOUND)
		return !head->module && !head->offset;
	return head->module <= CONTEXT_MODULES_MAX &&
	       (head->dtv_entry_bytes == 8 || head->dtv_entry_bytes == 16);
}

static int context_check(struct cursor *c, size_t count, struct helpers_answer *ret)
{
	struct context_head head;
	size_t texts;

	take(c, &head, sizeof(head));
	if (c->is_bad || count > CONTEXT_ATTRIBUTES_MAX || head.key_count > CONTEXT_KEYS_MAX ||
	    head.state >= HELPERS_CONTEXT_STATES || !is_place_good(&head) ||
	    (!head.published_ns &&
	     (count || head.key_count || (head.state && head.state != HELPERS_CONTEXT_INVALID))))
		return -EBADMSG;
	texts = 2 * count + head.key_count;
	ret->texts = mem_array(MEM_HELPERS, texts, sizeof(*ret->texts));
	if (texts && !ret->texts)
		return -ENOMEM;
	for (size_t i = 0; i < texts; i++) {
		ret->texts[i] = take_string(c, CONTEXT_PAYLOAD_MAX);
		if (!is_clean(ret->texts[i]))
			return -EBADMSG;
	}
	ret->context = (struct helpers_context){
		.published_ns = head.published_ns,
		.state = head.state,
		.place = {head.module, head.offset},
		.dtv_entry_bytes = head.dtv_entry_bytes,
		.attribute_count = count,
		.key_count = head.key_count,
		.attributes = (const char *const(*)[2])ret->texts,
		.keys = ret->texts + 2 * count,
	};
	ret->result.context = &ret->context;
	return 0;
}

static int info_check(struct cursor *c, struct helpers_answer *ret)
{
	take(c, &ret->info, sizeof(ret->info));
	if (c->is_bad || ret->info.class64 > 1 || ret->info.build_id_len > ELF_BUILD_ID_MAX ||
	    ret->info.segment_count > ELF_SEGMENTS_MAX)
		return -EBADMSG;
	ret->result.info = &ret->info;
	return 0;
}

/* Everything behind the head must be the four parts, which are copied to where they are aligned and
 * shapes have their room. */
static int table_parts(struct cursor *c, const struct table_head *head, struct helpers_answer *ret)
{
	uint64_t pages = 8ULL * head->page_count, groups = 4ULL * head->group_count;
	uint64_t shapes = 4ULL * head->shape_words,
		 rules = 4ULL * FLY_RULE_WORDS * head->rule_count;
	uint64_t room = head->shape_words ? 4ULL * UNWIND_SHAPE_ROOM : 0;
	struct unwind_table *t = &ret->table.table;
	char *at;

	if (c->is_bad || pages + groups + shapes + rules != c->left)
		return -EBADMSG;
	at = mem_alloc(MEM_HELPERS, c->left + room);
	if (!at)
		return -ENOMEM;
	ret->table_parts = at;
	t->pages = (void *)at;
	t->groups = (void *)(at + pages);
	t->shapes = (void *)(at + pages + groups);
	t->rules = (void *)(at + pages + groups + shapes + room);
	take(c, at, (size_t)(pages + groups + shapes));
	take(c, t->rules, (size_t)rules);
	return 0;
}

static int table_check(struct cursor *c, uint64_t bytes_max, struct helpers_answer *ret)
{
	struct unwind_table *t = &ret->table.table;
	struct table_head head;
	int err;

	take(c, &head, sizeof(head));
	*t = (struct unwind_table){
		.start = head.start,
		.info_offset = head.info_offset,
		.info_bytes = head.info_bytes,
		.info_address = head.info_address,
		.page_count = head.page_count,
		.group_count = head.group_count,
		.shape_words = head.shape_words,
		.rule_count = head.rule_count,
		.shape_count = head.shape_count,
		.machine = head.machine,
		.scale = head.scale,
		.found = head.found,
		.tracked = (uint8_t)head.tracked,
		.stats = head.stats,
	};
	memcpy(ret->table.hash, head.hash, sizeof(head.hash));
	if (head.tracked > UINT8_MAX || head.pad || unwind_table_bytes(t) > bytes_max)
		return -EBADMSG;
	err = table_parts(c, &head, ret);
	ret->result.table = &ret->table;
	return err ? err : unwind_table_check(t, NULL);
}

static int body_check(struct cursor *c, const struct head *head, uint32_t op, uint32_t tgid,
		      const uint64_t *asked, size_t asked_count, struct helpers_answer *ret)
{
	switch (op) {
	case WIRE_INSPECT:
	case WIRE_PACKED_INFO:
		return head->count == 1 ? info_check(c, ret) : -EBADMSG;
	case WIRE_PACK_DIGEST:
	case WIRE_DEBUG_DIGEST:
	case WIRE_PACK:
	case WIRE_DEBUG_PACK:
		take(c, ret->digest, sizeof(ret->digest));
		ret->result.digest = ret->digest;
		return head->count == 1 ? 0 : -EBADMSG;
	case WIRE_NAMES:
	case WIRE_PACKED_NAMES:
	case WIRE_VDSO:
	case WIRE_PERFMAP:
	case WIRE_DEBUG:
	case WIRE_FETCHED:
		return head->count == asked_count ? names_check(c, head->count, asked, ret)
						  : -EBADMSG;
	case WIRE_LINES:
	case WIRE_DEBUG_LINES:
	case WIRE_FETCHED_LINES:
		ret->result.supplement = ret->result.text;
		return head->count == asked_count ? lines_check(c, head->count, asked, ret)
						  : -EBADMSG;
	case WIRE_TABLE:
	case WIRE_VDSO_TABLE:
		return head->count == 1 && asked_count == 1 ? table_check(c, asked[0], ret)
							    : -EBADMSG;
	case WIRE_SCAN:
		return scan_check(c, head->count, tgid, ret);
	case WIRE_CONTEXT:
		return context_check(c, head->count, ret);
	default:
		return -EBADMSG;
	}
}

int helpers_answer_check(const void *data, size_t bytes, uint32_t op, uint32_t tgid,
			 const uint64_t *asked, size_t asked_count, struct helpers_answer *ret)
{
	struct cursor c = {.at = data, .left = bytes};
	struct head head;
	int err;

	memset(ret, 0, sizeof(*ret));
	take(&c, &head, sizeof(head));
	ret->result.text = take_string(&c, WIRE_TEXT_MAX);
	if (c.is_bad || head.op != op || head.err > 0 || head.err < -4095 ||
	    !head.err != !head.unnamed || head.unnamed >= FLY_UNNAMED_COUNT ||
	    !is_clean(ret->result.text))
		return -EBADMSG;
	ret->result.err = head.err;
	ret->result.unnamed = head.unnamed;
	if (head.err)
		return c.left ? -EBADMSG : 0;
	err = body_check(&c, &head, op, tgid, asked, asked_count, ret);
	if (!err && (op == WIRE_NAMES || op == WIRE_PACKED_NAMES))
		err = debug_check(&c, ret);
	if (!err && (c.is_bad || c.left))
		err = -EBADMSG;
	if (err)
		helpers_answer_done(ret);
	return err;
}

void helpers_answer_done(struct helpers_answer *answer)
{
	mem_free(MEM_HELPERS, answer->names);
	mem_free(MEM_HELPERS, answer->mappings);
	mem_free(MEM_HELPERS, answer->lines);
	mem_free(MEM_HELPERS, answer->frames);
	mem_free(MEM_HELPERS, answer->texts);
	mem_free(MEM_HELPERS, answer->table_parts);
	memset(answer, 0, sizeof(*answer));
}
