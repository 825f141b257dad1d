// SPDX-License-Identifier: Apache-2.0
/*
 * calibration: where its result is kept. A small text file, one key=value per line, written aside
 * and renamed. It decides how much sampling is allowed, so it counts only if nobody but its owner,
 * who must be us or root, can write it.
 */
#include "kernel/kernel_calibrate.h"
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FILE_BYTES 1024
#define TICK_MOST  10000000ULL

/* "model name : ..." of the first CPU. */
static void read_model(char *model, size_t size)
{
	char text[4096], *at, *end;

	model[0] = '\0';
	if (kernel_read_text("/proc/cpuinfo", text, sizeof(text)) <= 0)
		return;
	at = strstr(text, "model name");
	at = at ? strchr(at, ':') : NULL;
	if (!at)
		return;
	at += strspn(at, ": \t");
	end = strchr(at, '\n');
	text_print(at, end ? (size_t)(end - at) : strlen(at), model, size);
}

void kernel_calibration_machine(char *machine, size_t size)
{
	struct utsname name;
	char model[100];

	read_model(model, sizeof(model));
	uname(&name);
	snprintf(machine, size, "%s, Linux %.65s", model, name.release);
}

/* The directory of a path, one level. */
static void make_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	char directory[4096];

	if (!slash || slash == path || (size_t)(slash - path) >= sizeof(directory))
		return;
	snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
	mkdir(directory, 0755);
}

static int write_all(int fd, const char *text)
{
	size_t len = strlen(text);
	ssize_t n;

	while (len) {
		n = write(fd, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		text += n;
		len -= (size_t)n;
	}
	return fsync(fd) ? -errno : 0;
}

int kernel_calibration_write(const char *path, const struct kernel_calibration *c, struct why *why)
{
	char aside[4096], text[FILE_BYTES];
	int fd, err;

	if ((size_t)snprintf(aside, sizeof(aside), "%s.%d", path, (int)getpid()) >= sizeof(aside))
		return why_set(why, -ENAMETOOLONG, "the path is too long");
	snprintf(text, sizeof(text),
		 "tick_ns=%" PRIu64 "\nlow_ns=%" PRIu64 "\nhigh_ns=%" PRIu64
		 "\nseen_low_ns=%" PRIu64 "\nseen_high_ns=%" PRIu64 "\npairs=%" PRIu32
		 "\ncpu=%" PRIu32 "\nmeasured_s=%" PRIu64 "\nmachine=%s\n",
		 c->tick_ns, c->low_ns, c->high_ns, c->seen_low_ns, c->seen_high_ns, c->pairs,
		 c->cpu, c->measured_s, c->machine);
	make_directory(path);
	fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return why_set(why, -errno, "cannot write %s: %s", path, strerror(errno));
	err = write_all(fd, text);
	close(fd);
	if (!err && rename(aside, path))
		err = -errno;
	if (err) {
		unlink(aside);
		return why_set(why, err, "cannot write %s: %s", path, strerror(-err));
	}
	return 0;
}

static int read_file(const char *path, char *text, struct why *why)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), err = 0;
	struct stat st = {0};
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return why_set(why, -ENOENT,
			       "this machine was not calibrated: run flyball doctor --calibrate");
	if (fd < 0)
		return why_set(why, -errno, "%s cannot be opened: %s", path, strerror(errno));
	if (fstat(fd, &st))
		err = why_set(why, -errno, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode) || (st.st_uid && st.st_uid != geteuid()) ||
		 (st.st_mode & (S_IWGRP | S_IWOTH)))
		err = why_set(why, -EPERM, "%s is not trusted: others may write it", path);
	n = err ? 0 : read(fd, text, FILE_BYTES - 1);
	if (n < 0)
		err = why_set(why, -errno, "%s cannot be read: %s", path, strerror(errno));
	text[n > 0 ? n : 0] = '\0';
	close(fd);
	return err;
}

/* The value of a key at the start of a line; false when it is not there or too long. */
static bool find_value(const char *text, const char *key, char *value, size_t size)
{
	size_t len = strlen(key), value_len;
	const char *line = text;

	while (line && (strncmp(line, key, len) || line[len] != '=')) {
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	if (!line)
		return false;
	value_len = strcspn(line + len + 1, "\n");
	if (value_len >= size)
		return false;
	memcpy(value, line + len + 1, value_len);
	value[value_len] = '\0';
	return true;
}

static bool find_number(const char *text, const char *key, uint64_t max, uint64_t *ret)
{
	char value[32];

	return find_value(text, key, value, sizeof(value)) && !text_parse_u64(value, 0, max, ret);
}

int kernel_calibration_read(const char *path, struct kernel_calibration *ret, struct why *why)
{
	struct kernel_calibration c = {0};
	char text[FILE_BYTES] = "", here[sizeof(c.machine)];
	uint64_t pairs, cpu;
	int err = read_file(path, text, why);

	if (err)
		return err;
	if (!find_number(text, "tick_ns", TICK_MOST, &c.tick_ns) ||
	    !find_number(text, "low_ns", TICK_MOST, &c.low_ns) ||
	    !find_number(text, "high_ns", TICK_MOST, &c.high_ns) ||
	    !find_number(text, "seen_low_ns", TICK_MOST, &c.seen_low_ns) ||
	    !find_number(text, "seen_high_ns", TICK_MOST, &c.seen_high_ns) ||
	    !find_number(text, "pairs", UINT32_MAX, &pairs) ||
	    !find_number(text, "cpu", UINT32_MAX, &cpu) ||
	    !find_number(text, "measured_s", INT64_MAX, &c.measured_s) ||
	    !find_value(text, "machine", c.machine, sizeof(c.machine)) || !c.tick_ns ||
	    c.low_ns > c.tick_ns || c.tick_ns > c.high_ns || !c.seen_low_ns ||
	    c.seen_low_ns > c.tick_ns || c.tick_ns > c.seen_high_ns)
		return why_set(why, -EBADMSG, "%s is damaged: run flyball doctor --calibrate",
			       path);
	kernel_calibration_machine(here, sizeof(here));
	if (strcmp(here, c.machine))
		return why_set(why, -ESTALE,
			       "the machine was calibrated with another CPU or kernel: run flyball "
			       "doctor --calibrate");
	c.pairs = (uint32_t)pairs;
	c.cpu = (uint32_t)cpu;
	*ret = c;
	return 0;
}
