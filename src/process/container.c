// SPDX-License-Identifier: Apache-2.0
/*
 * container: who a process belongs to, read from the text of /proc/PID/cgroup
 * ("ID:controllers:path" a line; cgroups(7)). The path may hold colons and anything but a newline.
 * Pure.
 *
 * Each runtime and cgroup driver has its own form around the 64 hex digits: bare (docker with
 * cgroupfs), "docker-X.scope", "cri-containerd-X.scope", "crio-X", "libpod-X.scope/container",
 * "SLICE:cri-containerd:X". What conmon monitors carry is the id of what they watch, not of where
 * they run.
 */
#include "process/tracker.h"

#include <string.h>

#define ID_DIGITS 64

struct span {
	const char *text;
	size_t len;
};

static bool span_next_line(struct span *rest, struct span *ret)
{
	const char *end;

	if (!rest->len)
		return false;
	end = memchr(rest->text, '\n', rest->len);
	ret->text = rest->text;
	ret->len = end ? (size_t)(end - rest->text) : rest->len;
	rest->text += ret->len + (end ? 1 : 0);
	rest->len -= ret->len + (end ? 1 : 0);
	return true;
}

static bool span_strip(struct span *s, const char *suffix)
{
	size_t n = strlen(suffix);

	if (s->len < n || memcmp(s->text + s->len - n, suffix, n) != 0)
		return false;
	s->len -= n;
	return true;
}

/* The path of one line; is_v2 for hierarchy 0 with no controllers. */
static bool line_path(struct span line, struct span *ret, bool *ret_is_v2)
{
	const char *first = memchr(line.text, ':', line.len), *second;

	if (!first)
		return false;
	second = memchr(first + 1, ':', line.len - (size_t)(first + 1 - line.text));
	if (!second || second + 1 == line.text + line.len || second[1] != '/')
		return false;
	*ret_is_v2 = second == first + 1 && first == line.text + 1 && line.text[0] == '0';
	ret->text = second + 1;
	ret->len = line.len - (size_t)(second + 1 - line.text);
	span_strip(ret, " (deleted)"); /* the cgroup was removed while the process lived in it */
	return true;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool span_has(struct span s, const char *word)
{
	return memmem(s.text, s.len, word, strlen(word)) != NULL;
}

/* Whether one component of a path names a container. */
static bool component_id(struct span c, const char **ret_id)
{
	struct span prefix;

	if (!span_strip(&c, ".scope"))
		span_strip(&c, ".service");
	if (c.len < ID_DIGITS)
		return false;
	prefix = (struct span){c.text, c.len - ID_DIGITS};
	for (size_t i = prefix.len; i < c.len; i++) {
		if (!is_hex(c.text[i]))
			return false;
	}
	if (prefix.len &&
	    (prefix.text[prefix.len - 1] != '-' && prefix.text[prefix.len - 1] != ':'))
		return false;
	if (prefix.len == 1 || span_has(prefix, "conmon"))
		return false;
	*ret_id = c.text + prefix.len;
	return true;
}

/* The innermost container of a path. */
static bool path_id(struct span path, const char **ret_id)
{
	size_t end = path.len;

	while (end) {
		size_t start = end;

		while (start && path.text[start - 1] != '/')
			start--;
		if (component_id((struct span){path.text + start, end - start}, ret_id))
			return true;
		end = start ? start - 1 : 0;
	}
	return false;
}

void process_container_id(const char *cgroup_text, char out[65])
{
	struct span rest = {cgroup_text, strlen(cgroup_text)}, line, path;
	const char *id = NULL, *found;
	bool is_v2;

	while (span_next_line(&rest, &line)) {
		if (!line_path(line, &path, &is_v2) || !path_id(path, &found))
			continue;
		if (!id || is_v2)
			id = found;
		if (is_v2)
			break;
	}
	if (id)
		memcpy(out, id, ID_DIGITS);
	out[id ? ID_DIGITS : 0] = '\0';
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Copies with systemd's \xNN undone (systemd.unit(5)); \x00 is left as it stands. */
static void copy_unescaped(struct span path, char *out, size_t out_size)
{
	size_t n = 0;

	for (size_t i = 0; i < path.len && n + 1 < out_size; i++) {
		int high = -1, low = -1;

		if (path.text[i] == '\\' && i + 3 < path.len && path.text[i + 1] == 'x') {
			high = hex_value(path.text[i + 2]);
			low = hex_value(path.text[i + 3]);
		}
		if (high >= 0 && low >= 0 && high + low > 0) {
			out[n++] = (char)(high * 16 + low);
			i += 3;
		} else {
			out[n++] = path.text[i];
		}
	}
	out[n] = '\0';
}

void process_cgroup_path(const char *cgroup_text, char *out, size_t out_size)
{
	struct span rest = {cgroup_text, strlen(cgroup_text)}, line, path;
	struct span best = {"", 0};
	bool is_v2;

	if (!out_size)
		return;
	/* In hybrid mode everything may sit in the v2 root: then the first v1 path says more. */
	while (span_next_line(&rest, &line)) {
		if (!line_path(line, &path, &is_v2))
			continue;
		if (best.len <= 1 && path.len > best.len)
			best = path;
		if (is_v2 && path.len > 1) {
			best = path;
			break;
		}
	}
	copy_unescaped(best, out, out_size);
}

bool process_cgroup_is_v2(const char *cgroup_text)
{
	struct span rest = {cgroup_text, strlen(cgroup_text)}, line, path;
	bool is_v2, is_below_root = false, v2_has_id = false, v1_has_id = false;
	const char *id;

	while (span_next_line(&rest, &line)) {
		if (!line_path(line, &path, &is_v2))
			continue;
		if (is_v2) {
			is_below_root = path.len > 1;
			v2_has_id = path_id(path, &id);
		} else {
			v1_has_id |= path_id(path, &id);
		}
	}
	return is_below_root && (v2_has_id || !v1_has_id);
}
