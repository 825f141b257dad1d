// SPDX-License-Identifier: Apache-2.0
/*
 * room: how much our memory cgroup, and those above it, can still take. Maps are charged to the
 * cgroup of who creates them (since 5.11), so a limit that is too small would fail the load
 * halfway.
 *
 * What is inactive in the page cache can be taken back, so it counts as room.
 */
#include "kernel/kernel_internal.h"

#include <stdlib.h>
#include <string.h>

struct files {
	const char *limit, *usage, *inactive;
};
static const struct files v2 = {"memory.max", "memory.current", "inactive_file "};
static const struct files v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
				"total_inactive_file "};

/* False when there is no such file, or it says "max". */
static bool read_number(const char *dir, const char *file, uint64_t *ret)
{
	char path[4200], text[64];

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return false;
	if (kernel_read_text(path, text, sizeof(text)) <= 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	return !text_parse_u64(text, 0, UINT64_MAX, ret);
}

static uint64_t read_inactive(const char *dir, const char *key)
{
	char path[4200], text[8192], *at, *end;
	uint64_t value = 0;

	if (snprintf(path, sizeof(path), "%s/memory.stat", dir) >= (int)sizeof(path))
		return 0;
	if (kernel_read_text(path, text, sizeof(text)) <= 0)
		return 0;
	for (at = text; (at = strstr(at, key)); at += strlen(key)) {
		if (at != text && at[-1] != '\n')
			continue;
		at += strlen(key);
		end = at + strcspn(at, "\n");
		*end = '\0';
		return text_parse_u64(at, 0, UINT64_MAX, &value) ? 0 : value;
	}
	return 0;
}

static uint64_t room_of(const char *dir, const struct files *files)
{
	uint64_t limit, usage, inactive;

	if (!read_number(dir, files->limit, &limit) || !read_number(dir, files->usage, &usage))
		return UINT64_MAX;
	inactive = read_inactive(dir, files->inactive);
	usage -= inactive < usage ? inactive : usage;
	return limit > usage ? limit - usage : 0;
}

/* The smallest room from root/path up to root. */
static uint64_t room_along(const char *root, const char *path, const struct files *files)
{
	char dir[4096];
	uint64_t least = UINT64_MAX, room;
	size_t root_len = strlen(root);
	char *slash;

	if (snprintf(dir, sizeof(dir), "%s%s", root, path) >= (int)sizeof(dir))
		return UINT64_MAX;
	for (;;) {
		room = room_of(dir, files);
		least = room < least ? room : least;
		slash = strrchr(dir, '/');
		if (strlen(dir) <= root_len || !slash)
			return least;
		*slash = '\0';
	}
}

/* True when the list of controllers of a v1 line has memory in it. */
static bool has_memory(const char *line, const char *end)
{
	const char *at = line;

	while (at < end) {
		size_t len = strcspn(at, ",:");

		if (len == 6 && !strncmp(at, "memory", 6))
			return true;
		at += len + 1;
	}
	return false;
}

uint64_t kernel_room_in(const char *root, const char *cgroup_text)
{
	uint64_t least = UINT64_MAX, room;
	char copy[4096], v1_root[4096], *line, *save = NULL;

	snprintf(copy, sizeof(copy), "%s", cgroup_text);
	snprintf(v1_root, sizeof(v1_root), "%.4000s/memory", root);
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path)
			continue;
		controllers++;
		if (controllers == path)
			room = room_along(root, path + 1, &v2);
		else if (has_memory(controllers, path))
			room = room_along(v1_root, path + 1, &v1);
		else
			continue;
		least = room < least ? room : least;
	}
	return least;
}

uint64_t kernel_room(void)
{
	char text[4096];

	if (kernel_read_text("/proc/self/cgroup", text, sizeof(text)) < 0)
		return UINT64_MAX;
	return kernel_room_in("/sys/fs/cgroup", text);
}
