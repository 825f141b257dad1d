// SPDX-License-Identifier: Apache-2.0
/*
 * What tables would hold for the processes that run now. A child looks at every process's mappings
 * and reads the headers of each file once, no call frame information; it counts in memory that we
 * share with it, and is killed at a deadline without being waited for.
 */
#include "cli_plan_running.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/table_space.h"
#include "cli_unwind_stack.h"
#include "unwind/unwind.h"

#define FILES_SEEN_MAX 32768U /* a power of two */
#define DEADLINE_MS    5000
#define USER_END       (1ULL << 47)

struct file_id {
	uint64_t dev, ino;
};

struct scan {
	struct cli_plan_running *found;
	struct file_id *seen; /* by hash; ino 0: free */
	uint32_t seen_count;
	bool is_full;
};

/* True the first time. */
static bool file_is_new(struct scan *scan, uint64_t dev, uint64_t ino)
{
	uint64_t at = (ino ^ dev << 32) * 0x9e3779b97f4a7c15ULL >> 32;
	struct file_id *id;

	for (;; at++) {
		id = &scan->seen[at % FILES_SEEN_MAX];
		if (!id->ino)
			break;
		if (id->dev == dev && id->ino == ino)
			return false;
	}
	if (scan->seen_count >= FILES_SEEN_MAX / 4 * 3) {
		scan->is_full = true;
		return false;
	}
	*id = (struct file_id){dev, ino};
	scan->seen_count++;
	return true;
}

/* A device is looked at, never opened. */
static int regular_open(const char *path, uint64_t *ret_bytes)
{
	int at = open(path, O_PATH | O_CLOEXEC), fd = -1;
	char again[64];
	struct stat st;

	if (at < 0)
		return -errno;
	if (!fstat(at, &st) && S_ISREG(st.st_mode)) {
		snprintf(again, sizeof(again), "/proc/self/fd/%d", at);
		fd = open(again, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		*ret_bytes = (uint64_t)st.st_size;
	}
	close(at);
	return fd < 0 ? -ENOENT : fd;
}

static void file_count(struct scan *scan, const char *pid, uint64_t start, uint64_t end)
{
	struct unwind_source source = {.read = cli_unwind_read};
	struct unwind_place place;
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/map_files/%" PRIx64 "-%" PRIx64, pid, start, end);
	fd = regular_open(path, &source.bytes);
	if (fd < 0) {
		scan->found->files_unreadable++;
		return;
	}
	source.ctx = &fd;
	if (unwind_locate(&source, &place, NULL)) {
		scan->found->files_without++;
	} else {
		scan->found->files++;
		scan->found->table_bytes += unwind_forecast_bytes(&place);
	}
	close(fd);
}

/* True: a mapping of code. */
static bool line_count(struct scan *scan, const char *pid, const char *text)
{
	unsigned int dev_major, dev_minor;
	uint64_t start, end, ino;
	char perms[5];

	if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %*x %x:%x %" SCNu64, &start, &end, perms,
		   &dev_major, &dev_minor, &ino) != 6 ||
	    perms[2] != 'x' || start >= USER_END)
		return false;
	if (ino && file_is_new(scan, (uint64_t)dev_major << 32 | dev_minor, ino))
		file_count(scan, pid, start, end);
	return true;
}

static void process_count(struct scan *scan, const char *pid)
{
	size_t size = 0, mappings = 0;
	char path[64], *line = NULL;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	maps = fopen(path, "re");
	while (maps && getline(&line, &size, maps) > 0)
		mappings += line_count(scan, pid, line);
	if (mappings)
		scan->found->processes++;
	else if (!maps && !access(path, F_OK))
		scan->found->processes_unreadable++;
	if (mappings > FLY_MAPPINGS_MAX)
		mappings = FLY_MAPPINGS_MAX;
	scan->found->mapping_bytes += mappings * sizeof(struct fly_mapping);
	free(line);
	if (maps)
		fclose(maps);
}

static void scan_all(struct scan *scan)
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	char self[16];

	snprintf(self, sizeof(self), "%d", getpid());
	while (proc && (entry = readdir(proc))) {
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
		    strcmp(entry->d_name, self))
			process_count(scan, entry->d_name);
	}
	if (proc)
		closedir(proc);
	scan->found->is_complete = proc && !scan->is_full;
}

/* Never returns. Holds nothing of ours that its reader might wait for. */
static _Noreturn void child_run(struct cli_plan_running *shared)
{
	struct scan scan = {.found = shared};

	for (int fd = 0; fd <= 2; fd++)
		close(fd);
	scan.seen = mem_array(MEM_BASE, FILES_SEEN_MAX, sizeof(*scan.seen));
	if (scan.seen)
		scan_all(&scan);
	_exit(0);
}

int cli_plan_running(struct cli_plan_running *ret, struct why *why)
{
	struct cli_plan_running *shared;
	struct pollfd ended = {.events = POLLIN};
	int ends[2];
	pid_t pid;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return why_set(why, -errno, "mmap: %s", strerror(errno));
	if (pipe2(ends, O_CLOEXEC)) {
		int err = why_set(why, -errno, "pipe: %s", strerror(errno));

		munmap(shared, sizeof(*shared));
		return err;
	}
	pid = fork();
	if (!pid)
		child_run(shared);
	close(ends[1]);
	ended.fd = ends[0];
	if (pid > 0 && poll(&ended, 1, DEADLINE_MS) <= 0)
		kill(pid, SIGKILL);
	else if (pid > 0)
		waitpid(pid, NULL, 0);
	close(ends[0]);
	*ret = *shared;
	munmap(shared, sizeof(*shared));
	return pid < 0 ? why_set(why, -EAGAIN, "no child can be started") : 0;
}
