// SPDX-License-Identifier: Apache-2.0
#include "opener_perfmap.h"

#include "opener_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PLACES_MAX 512
#define TICK_NS	   (1000000000ULL / 100)
/* The start is known to a hundredth of a second, and file systems stamp by the last tick. */
#define STALE_SLACK_NS 1000000000LL

struct place {
	uint64_t key; /* 0: free */
	uint64_t used;
	int directory; /* /tmp, O_PATH */
	uint32_t pid, uid;
	int64_t began_ns; /* CLOCK_REALTIME by today's offset */
};

struct opener_perfmaps {
	struct place places[PLACES_MAX];
	uint64_t clock;
};

int opener_perfmaps_new(struct opener_perfmaps **ret, struct why *why)
{
	*ret = mem_alloc(MEM_HELPERS, sizeof(**ret));
	return *ret ? 0 : why_set(why, -ENOMEM, "out of memory");
}

/* The slot of key, or the one that is free or was used least recently, emptied. */
static struct place *place_slot(struct opener_perfmaps *maps, uint64_t key)
{
	struct place *best = maps->places;

	for (size_t i = 0; i < PLACES_MAX; i++) {
		struct place *p = &maps->places[i];

		if (p->key == key)
			return p;
		if (p->used < best->used)
			best = p;
	}
	if (best->key)
		close(best->directory);
	memset(best, 0, sizeof(*best));
	return best;
}

/* Of status: the last of NSpid and of Uid, which are the innermost PID and the uid that files are
 * made with. The name in the first line has its newlines escaped. */
static int status_read(int process, uint32_t *ret_pid, uint32_t *ret_uid)
{
	int fd = openat(process, "status", O_RDONLY | O_CLOEXEC);
	char text[4096], *p;
	unsigned int uid;
	ssize_t n;

	if (fd < 0)
		return -ESRCH;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -ESRCH;
	text[n] = 0;
	p = strstr(text, "\nUid:");
	if (!p || sscanf(p, "\nUid: %*u %*u %*u %u", &uid) != 1)
		return -ESRCH;
	*ret_uid = uid;
	*ret_pid = 0;
	p = strstr(text, "\nNSpid:");
	if (!p)
		return -ESRCH;
	for (p += strlen("\nNSpid:"); *p == '\t';)
		*ret_pid = (uint32_t)strtoul(p + 1, &p, 10);
	return *ret_pid ? 0 : -ESRCH;
}

static int open_beneath(int directory, const char *name, int flags)
{
	struct open_how how = {.flags = (uint64_t)(O_PATH | O_CLOEXEC | flags),
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
	long fd = syscall(SYS_openat2, directory, name, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int place_look(int process, const struct wire_request *r, struct place *ret)
{
	int task = opener_task_directory(process), at = task >= 0 ? task : process, root;
	int err = status_read(at, &ret->pid, &ret->uid);

	root = openat(at, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!err && root < 0)
		err = errno == ENOENT ? -ESRCH : -errno;
	if (!err) {
		ret->directory = open_beneath(root, "tmp", O_DIRECTORY);
		err = ret->directory < 0 ? ret->directory : 0;
	}
	ret->began_ns = (int64_t)(r->process_start_ns ? r->process_start_ns
						      : opener_start_ticks(process) * TICK_NS);
	ret->began_ns += now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME);
	if (root >= 0)
		close(root);
	if (task >= 0)
		close(task);
	return err;
}

/* A process that lives is looked at again: it may have got another root, /tmp or user. */
static int place_find(struct opener_perfmaps *maps, const struct wire_request *r,
		      struct place **ret)
{
	struct place *slot = place_slot(maps, r->key), now = {.key = r->key};
	int process = opener_process_directory(r->tgid, r->process_start_ns);
	int err = process < 0 ? process : place_look(process, r, &now);

	if (process >= 0)
		close(process);
	if (!err) {
		if (slot->key)
			close(slot->directory);
		*slot = now;
	} else if (err != -ESRCH || !slot->key) {
		return err;
	}
	slot->used = ++maps->clock;
	*ret = slot;
	return 0;
}

static int told(int err, struct why *why)
{
	if (err == -ESRCH || err == -ENOENT || err == -ENOTDIR)
		return why_set(why, -ENOENT, "the process has no perf map in its /tmp");
	if (err == -ELOOP)
		return why_set(why, -EACCES, "a symbolic link leads to the perf map");
	return err ? why_set(why, err, "cannot open the perf map: %s", strerror(-err)) : 0;
}

int opener_perfmap_hold(struct opener_perfmaps *maps, const struct wire_request *request,
			struct why *why)
{
	struct place *place;

	return told(place_find(maps, request, &place), why);
}

/* Changes with the content, as far as fstat tells. */
static uint64_t stamp_of(const struct stat *st)
{
	uint64_t parts[] = {st->st_dev, st->st_ino, (uint64_t)st->st_size,
			    (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec};
	uint64_t h = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		h = ((h ^ parts[i]) * 0x100000001b3ULL) ^ h >> 29;
	return h | 1;
}

/* fd is taken. */
static int map_judge(int fd, const struct place *place, struct opener_perfmap *ret, struct why *why)
{
	struct opener_file file;
	struct stat st;
	int err = fstat(fd, &st) ? -errno : 0;

	if (!err && !S_ISREG(st.st_mode))
		err = why_set(why, -EACCES, "the perf map is not a regular file");
	else if (!err && st.st_uid != place->uid)
		err = why_set(why, -EACCES, "the perf map belongs to user %u, the process to %u",
			      st.st_uid, place->uid);
	else if (!err && st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec <
				 place->began_ns - STALE_SLACK_NS)
		err = why_set(why, -ENOENT, "the perf map is older than the process");
	if (err) {
		close(fd);
		return err;
	}
	err = opener_open_in_earnest(fd, &file);
	if (err)
		return told(err, why);
	*ret = (struct opener_perfmap){file.fd, stamp_of(&st)};
	return 0;
}

int opener_perfmap_open(struct opener_perfmaps *maps, const struct wire_request *request,
			struct opener_perfmap *ret, struct why *why)
{
	struct place *place;
	char name[32];
	int fd, err = place_find(maps, request, &place);

	if (err)
		return told(err, why);
	snprintf(name, sizeof(name), "perf-%u.map", place->pid);
	fd = open_beneath(place->directory, name, 0);
	return fd < 0 ? told(fd, why) : map_judge(fd, place, ret, why);
}
