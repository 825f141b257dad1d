// SPDX-License-Identifier: Apache-2.0
/* Parsing of /proc texts (proc_pid_stat(5), proc_pid_maps(5)). Paths and names in them are chosen
 * by whoever runs the process: they are carried as bytes, cut at our limits, and shown by nobody
 * here. */
#include "reader_scan.h"

#include "abi/reasons.h"
#include "helpers_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_NS	       (1000000000ULL / 100)
#define PATHS_MAX      (4U << 20) /* bytes of all paths of a scan */
#define TEXT_MAX_BYTES 8192

/* Reads what there is, at most size - 1 bytes; NULs inside become spaces. */
static size_t text_read(int fd, char *out, size_t size)
{
	size_t have = 0;

	while (fd >= 0 && have < size - 1) {
		ssize_t n = read(fd, out + have, size - 1 - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	for (size_t i = 0; i < have; i++) {
		if (!out[i])
			out[i] = ' ';
	}
	out[have] = 0;
	return have;
}

/* The name between the first '(' and the last ')', with \n and \\ undone (proc_task_name). */
static bool stat_parse(char *text, char *comm, size_t comm_size, uint64_t *ret_start_ns)
{
	char *open = strchr(text, '('), *close = strrchr(text, ')'), *p = close;
	size_t n = 0;

	if (!open || !close || close < open)
		return false;
	for (char *c = open + 1; c < close && n + 1 < comm_size; c++) {
		if (*c == '\\' && c + 1 < close && (c[1] == 'n' || c[1] == '\\')) {
			c++;
			comm[n++] = *c == 'n' ? '\n' : '\\';
		} else {
			comm[n++] = *c;
		}
	}
	comm[n] = 0;
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return false;
	*ret_start_ns = strtoull(p + 1, NULL, 10) * TICK_NS;
	return true;
}

static void status_parse(const char *text, struct helpers_scan *scan)
{
	const char *p = strstr(text, "\nUid:\t");

	if (p)
		scan->uid = (uint32_t)strtoul(p + 6, NULL, 10);
	/* One number for each PID namespace, the innermost last. */
	p = strstr(text, "\nNSpid:");
	for (p = p ? p + 7 : NULL; p && *p == '\t';) {
		char *end;

		scan->namespace_pid = (uint32_t)strtoul(p + 1, &end, 10);
		p = end;
	}
}

static bool strip_deleted(char *path)
{
	static const char suffix[] = " (deleted)";
	size_t len = strlen(path), n = sizeof(suffix) - 1;

	if (len < n || strcmp(path + len - n, suffix) != 0)
		return false;
	path[len - n] = 0;
	return true;
}

/* The kernel writes a newline in a path as \012, and escapes nothing else. */
static void unescape(char *path)
{
	char *to = path;

	for (const char *from = path; *from;) {
		if (!strncmp(from, "\\012", 4)) {
			*to++ = '\n';
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = 0;
}

struct maps {
	struct helpers_mapping *items; /* path holds an offset into paths until the end */
	size_t count, cap;
	struct buf paths;
	uint64_t last_end;
	bool is_cut;
	int err;
};

static uint64_t number(char **at, int base, char separator)
{
	char *end;
	uint64_t v = strtoull(*at, &end, base);

	*at = end == *at || *end != separator ? NULL : end + 1;
	return v;
}

static void map_add(struct maps *maps, const struct helpers_mapping *m, char *path)
{
	void *items = maps->items;
	size_t at = maps->paths.len;

	unescape(path);
	if (maps->count == HELPERS_MAPPINGS_MAX || strlen(path) >= WIRE_PATH_MAX) {
		maps->is_cut = true;
		return;
	}
	maps->err = mem_grow(MEM_HELPERS, &items, &maps->cap, maps->count + 1, HELPERS_MAPPINGS_MAX,
			     sizeof(*maps->items));
	maps->items = items;
	if (maps->err)
		return;
	maps->items[maps->count] = *m;
	maps->items[maps->count].is_deleted = strip_deleted(path);
	maps->items[maps->count].path = (const char *)(uintptr_t)at;
	buf_add(&maps->paths, path, strlen(path) + 1);
	if (maps->paths.err == -ENOSPC)
		maps->is_cut = true;
	else if (maps->paths.err)
		maps->err = maps->paths.err;
	else
		maps->count++;
}

static bool map_visit(void *ctx, const struct reader_map *map)
{
	struct maps *maps = ctx;

	/* Unordered or empty ones the kernel does not write. */
	if (map->is_executable && map->mapping.end > map->mapping.start &&
	    map->mapping.start >= maps->last_end) {
		maps->last_end = map->mapping.end;
		map_add(maps, &map->mapping, map->path);
	}
	return !maps->err && !maps->is_cut;
}

/* START-END PERMS OFFSET MAJOR:MINOR INODE   PATH */
static bool line_parse(char *line, struct reader_map *ret)
{
	struct helpers_mapping *m = &ret->mapping;
	char *p = line;

	*ret = (struct reader_map){.path = line};
	m->start = number(&p, 16, '-');
	if (p)
		m->end = number(&p, 16, ' ');
	if (!p || strlen(p) < 5 || p[4] != ' ')
		return false;
	ret->is_executable = p[2] == 'x';
	p += 5;
	m->pgoff = number(&p, 16, ' ');
	if (p)
		m->dev_major = (uint32_t)number(&p, 16, ':');
	if (p)
		m->dev_minor = (uint32_t)number(&p, 16, ' ');
	if (!p)
		return false;
	m->ino = strtoull(p, &p, 10);
	while (*p == ' ')
		p++;
	ret->path = p;
	return true;
}

bool reader_maps(int fd, reader_map_visit visit, void *ctx)
{
	static char buffer[32768];
	bool is_skipping = false, is_whole = true;
	size_t have = 0;

	for (;;) {
		ssize_t n = read(fd, buffer + have, sizeof(buffer) - 1 - have);
		size_t at = 0;
		char *end;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return is_whole;
		have += (size_t)n;
		while ((end = memchr(buffer + at, '\n', have - at)) != NULL) {
			struct reader_map map;

			*end = 0;
			if (!is_skipping && line_parse(buffer + at, &map) && !visit(ctx, &map))
				return false;
			is_skipping = false;
			at = (size_t)(end - buffer) + 1;
		}
		memmove(buffer, buffer + at, have - at);
		have -= at;
		if (have == sizeof(buffer) - 1) {
			is_skipping = true;
			is_whole = false;
			have = 0;
		}
	}
}

void reader_scan(const struct wire_request *job, const int fds[WIRE_FILES_MAX], const char *exe,
		 struct buf *out)
{
	char text[TEXT_MAX_BYTES], comm[WIRE_COMM_MAX], exe_path[WIRE_PATH_MAX];
	char cgroup[WIRE_CGROUP_MAX + 1];
	struct helpers_scan scan = {.tgid = job->tgid, .mount_namespace = job->mount_namespace};
	struct maps maps = {0};

	text_read(fds[0], text, sizeof(text));
	if (!stat_parse(text, comm, sizeof(comm), &scan.process_start_ns)) {
		helpers_answer_error(out, WIRE_SCAN, -ESRCH, FLY_UNNAMED_FILE_GONE,
				     "the process has ended");
		return;
	}
	text_read(fds[1], text, sizeof(text));
	status_parse(text, &scan);
	text_read(fds[2], cgroup, sizeof(cgroup));
	snprintf(exe_path, sizeof(exe_path), "%s", exe);
	strip_deleted(exe_path);
	buf_init(&maps.paths, MEM_HELPERS, PATHS_MAX);
	if (fds[3] >= 0)
		maps.is_cut |= !reader_maps(fds[3], map_visit, &maps) && !maps.err;
	for (size_t i = 0; i < maps.count; i++)
		maps.items[i].path = maps.paths.data + (uintptr_t)maps.items[i].path;
	scan.comm = comm;
	scan.exe = exe_path;
	scan.cgroup = cgroup;
	scan.mappings = maps.items;
	scan.mapping_count = maps.count;
	scan.is_cut = maps.is_cut;
	if (maps.err)
		helpers_answer_error(out, WIRE_SCAN, maps.err, FLY_UNNAMED_READER_FAILED,
				     "out of memory");
	else
		helpers_answer_scan(out, &scan);
	buf_done(&maps.paths);
	mem_free(MEM_HELPERS, maps.items);
}
