// SPDX-License-Identifier: Apache-2.0
/*
 * Reading the memory of a process may block for ever (userfaultfd); main watches the clock. How
 * much is read is bounded here, whatever that memory says.
 */
#include "reader_context.h"

#include "abi/reasons.h"
#include "helpers_answer.h"
#include "reader_scan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define MODULES_MAX 1024   /* programs and libraries of one process that are looked at */
#define READS_MAX   100000 /* about 0.1 s */
#define BYTES_MAX   (64U << 20)

struct memory {
	int fd;
	uint32_t reads;
	size_t bytes;
};

static bool is_spent(const struct memory *m)
{
	return m->reads > READS_MAX || m->bytes > BYTES_MAX;
}

static bool memory_read(void *ctx, uint64_t address, void *out, size_t bytes)
{
	struct memory *m = ctx;

	m->reads++;
	m->bytes += bytes;
	if (is_spent(m) || address > INT64_MAX)
		return false;
	return pread(m->fd, out, bytes, (off_t)address) == (ssize_t)bytes;
}

struct look {
	const char *exe;
	uint64_t published; /* address of the process context; 0: none */
	uint64_t last_ino;
	bool is_musl;
	size_t count;
	struct context_module modules[MODULES_MAX];
};

static bool starts_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

/* The first page of a file is where a module starts; more pieces of the same file follow it. */
static void look_at_file(struct look *look, const struct reader_map *map)
{
	const char *name = strrchr(map->path, '/');

	if (starts_with(name + 1, "ld-musl-") || starts_with(name + 1, "libc.musl-"))
		look->is_musl = true;
	if (map->mapping.pgoff || map->mapping.ino == look->last_ino || look->count == MODULES_MAX)
		return;
	look->last_ino = map->mapping.ino;
	look->modules[look->count++] = (struct context_module){
		.start = map->mapping.start,
		.is_main = !strcmp(map->path, look->exe),
		.fd = -1,
	};
}

static bool look_at_map(void *ctx, const struct reader_map *map)
{
	struct look *look = ctx;

	if (context_is_mapping(map->path)) {
		if (!look->published)
			look->published = map->mapping.start;
	} else if (map->mapping.ino && map->path[0] == '/') {
		look_at_file(look, map);
	}
	return true;
}

/* Where the threads' variable is; the program comes first in maps, and most often has it. */
static void find_place(const struct context_memory *reading, struct look *look, int exe,
		       struct helpers_context *ret, struct why *ret_why)
{
	ret->state = HELPERS_CONTEXT_LATER; /* a library may come */
	for (size_t i = 0; i < look->count; i++) {
		struct context_module *module = &look->modules[i];
		struct why why = {""};
		int err;

		module->fd = module->is_main ? exe : -1;
		err = context_find(reading, module, &ret->place, &why);
		if (!err) {
			ret->state = HELPERS_CONTEXT_FOUND;
			ret_why->text[0] = 0;
			return;
		}
		if (err == -EOPNOTSUPP || err == -EBADMSG) {
			ret->state = HELPERS_CONTEXT_UNSUPPORTED;
			*ret_why = why;
		}
	}
	if (is_spent(reading->ctx) || look->count == MODULES_MAX) {
		ret->state = HELPERS_CONTEXT_UNSUPPORTED;
		why_set(ret_why, 0, "more programs and libraries than are looked at");
	}
}

static const char *copy_text(struct buf *texts, const struct context_text *text)
{
	char clean[CONTEXT_TEXT_MAX];
	size_t at = texts->len;

	text_print(text->bytes ? text->bytes : "", text->length, clean, sizeof(clean));
	buf_add(texts, clean, strlen(clean) + 1);
	return (const char *)(uintptr_t)at;
}

/* Makes the texts printable; they lie in texts. */
static int copy_texts(const struct context_process *process, struct buf *texts,
		      const char *attributes[][2], const char *keys[])
{
	for (size_t i = 0; i < process->attribute_count; i++) {
		attributes[i][0] = copy_text(texts, &process->attributes[i].key);
		attributes[i][1] = copy_text(texts, &process->attributes[i].value);
	}
	for (size_t i = 0; i < process->key_count; i++)
		keys[i] = copy_text(texts, &process->keys[i]);
	if (texts->err)
		return texts->err;
	for (size_t i = 0; i < process->attribute_count; i++)
		for (size_t k = 0; k < 2; k++)
			attributes[i][k] = texts->data + (uintptr_t)attributes[i][k];
	for (size_t i = 0; i < process->key_count; i++)
		keys[i] = texts->data + (uintptr_t)keys[i];
	return 0;
}

void reader_context(const int fds[READER_CONTEXT_FILES], const char *exe, struct buf *out)
{
	static const char *attributes[CONTEXT_ATTRIBUTES_MAX][2], *keys[CONTEXT_KEYS_MAX];
	static struct context_process process;
	static struct look look;
	struct memory memory = {.fd = fds[1]};
	const struct context_memory reading = {&memory, memory_read};
	struct helpers_context context = {.state = HELPERS_CONTEXT_NONE};
	struct why why = {""};
	struct buf texts;
	int err;

	look.exe = exe;
	look.published = look.last_ino = look.count = look.is_musl = 0;
	if (fds[0] >= 0)
		reader_maps(fds[0], look_at_map, &look);
	/* Without a process context nobody reads the threads' (OTEP 4947): most processes end here.
	 */
	err = look.published ? context_process_read(&reading, look.published, &process, &why)
			     : -ENOENT;
	if (err) {
		if (err == -EBADMSG)
			context.state = HELPERS_CONTEXT_INVALID;
		helpers_answer_context(out, &context, err == -EBADMSG ? why.text : "");
		return;
	}
	buf_init(&texts, MEM_HELPERS, WIRE_ANSWER_MAX);
	context.published_ns = process.published_ns;
	context.dtv_entry_bytes = look.is_musl ? 8 : 16;
	if (process.has_threads)
		find_place(&reading, &look, fds[2], &context, &why);
	if (context.state != HELPERS_CONTEXT_FOUND)
		context.place = (struct context_place){0, 0};
	if (copy_texts(&process, &texts, attributes, keys)) {
		helpers_answer_error(out, WIRE_CONTEXT, -ENOMEM, FLY_UNNAMED_READER_FAILED,
				     "out of memory");
	} else {
		context.attribute_count = process.attribute_count;
		context.key_count = process.key_count;
		context.attributes = (const char *const(*)[2])attributes;
		context.keys = (const char *const *)keys;
		helpers_answer_context(out, &context, why.text);
	}
	buf_done(&texts);
}
