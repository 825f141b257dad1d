// SPDX-License-Identifier: Apache-2.0
/*
 * A file is looked for where it surely is the mapped one (map_files, exe: magic links, good also
 * when it was deleted, replaced, or lies in another mount namespace), then by its path below the
 * process's root, then, when the process is gone, by its path in our own root, which counts only
 * when the reader finds the expected build-id in it.
 *
 * Everything is first opened with O_PATH, which opens no device and reads nothing, and judged by
 * fstat; only regular files are opened in earnest. The /proc/TGID directory held open stands for
 * one process: once that is gone, nothing can be reached through it any more, whoever has its
 * number now.
 */
#include "opener_files.h"

#define HASH_NONFATAL_OOM	1
#define uthash_malloc(bytes)	mem_alloc(MEM_HELPERS, bytes)
#define uthash_free(p, bytes)	mem_free(MEM_HELPERS, p)
#define uthash_nonfatal_oom(el) ((el)->is_lost = true)
#include <uthash.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define KEPT_MAX   4096
#define KEPT_SPARE 64		       /* descriptors for everything else */
#define TASKS_MAX  64		       /* threads looked at when a leader has ended */
#define TICK_NS	   (1000000000U / 100) /* USER_HZ is 100 on every architecture we run on */

struct kept {
	uint64_t key;
	struct opener_file file;
	bool is_lost; /* the table had no memory for it */
	UT_hash_handle hh;
};

struct opener_files {
	struct kept *kept; /* in order of use, least recent first */
	size_t max;
};

int opener_files_new(struct opener_files **ret, struct why *why)
{
	struct opener_files *files = mem_alloc(MEM_HELPERS, sizeof(*files));
	struct rlimit limit;

	if (!files)
		return why_set(why, -ENOMEM, "out of memory");
	files->max = KEPT_MAX;
	if (!getrlimit(RLIMIT_NOFILE, &limit)) {
		limit.rlim_cur = limit.rlim_max;
		if (limit.rlim_cur > KEPT_MAX + KEPT_SPARE)
			limit.rlim_cur = KEPT_MAX + KEPT_SPARE;
		setrlimit(RLIMIT_NOFILE, &limit);
		getrlimit(RLIMIT_NOFILE, &limit);
		if (limit.rlim_cur < KEPT_MAX + KEPT_SPARE)
			files->max = limit.rlim_cur > 2 * KEPT_SPARE ? limit.rlim_cur - KEPT_SPARE
								     : KEPT_SPARE / 2;
	}
	*ret = files;
	return 0;
}

static void drop(struct opener_files *files, struct kept *kept)
{
	HASH_DEL(files->kept, kept); /* NOLINT(clang-analyzer-core.NullDereference): in the table */
	close(kept->file.fd);
	mem_free(MEM_HELPERS, kept);
}

void opener_files_release(struct opener_files *files, uint64_t key)
{
	struct kept *kept;

	HASH_FIND(hh, files->kept, &key, sizeof(key), kept);
	if (kept)
		drop(files, kept);
}

static int keep(struct opener_files *files, uint64_t key, const struct opener_file *file)
{
	struct kept *kept = mem_alloc(MEM_HELPERS, sizeof(*kept));

	if (!kept)
		return -ENOMEM;
	while (HASH_COUNT(files->kept) >= files->max)
		drop(files, files->kept);
	kept->key = key;
	kept->file = *file;
	HASH_ADD(hh, files->kept, key, sizeof(kept->key), kept);
	if (kept->is_lost) {
		mem_free(MEM_HELPERS, kept);
		return -ENOMEM;
	}
	return 0;
}

/* The name in field 2 may hold anything. */
uint64_t opener_start_ticks(int process)
{
	char text[1024], *p;
	ssize_t n;
	int fd = openat(process, "stat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

int opener_process_directory(uint32_t tgid, uint64_t start_ns)
{
	char path[32];
	uint64_t ticks;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u", tgid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (!start_ns)
		return fd;
	ticks = opener_start_ticks(fd);
	if (ticks != start_ns / TICK_NS) {
		close(fd);
		return -ESRCH;
	}
	return fd;
}

int opener_task_directory(int process)
{
	int fd = openat(process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = -1, seen = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	char exe[2];

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while (ret < 0 && seen++ < TASKS_MAX && (e = readdir(dir)) != NULL) {
		int task;

		if (e->d_name[0] == '.')
			continue;
		task = openat(fd, e->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (task >= 0 && readlinkat(task, "exe", exe, sizeof(exe)) > 0)
			ret = task;
		else if (task >= 0)
			close(task);
	}
	closedir(dir);
	return ret;
}

static uint64_t mtime_of(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000000ULL + (uint64_t)st->st_mtim.tv_nsec;
}

static bool is_layered(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) || fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

int opener_open_in_earnest(int path_fd, struct opener_file *ret)
{
	char link[32];
	struct stat st;
	int fd, err = 0;

	if (fstat(path_fd, &st)) {
		err = -errno;
	} else if (!S_ISREG(st.st_mode)) {
		err = -EACCES;
	} else {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
		fd = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			err = -errno;
		else
			*ret = (struct opener_file){.fd = fd,
						    .dev = st.st_dev,
						    .ino = st.st_ino,
						    .mtime_ns = mtime_of(&st),
						    .is_layered = is_layered(fd)};
	}
	close(path_fd);
	return err;
}

static bool is_same_inode(int path_fd, uint64_t ino)
{
	struct stat st;

	return ino && !fstat(path_fd, &st) && st.st_ino == ino;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* True when the mapping is of a file with another name than path now: after dlclose and dlopen
 * there may lie another library. The directories may honestly differ (mount namespaces, chroot). */
static bool is_of_another_name(int process, const char *mapping, const char *path)
{
	static const char deleted[] = " (deleted)";
	size_t n = sizeof(deleted) - 1;
	char link[WIRE_PATH_MAX];
	ssize_t length = readlinkat(process, mapping, link, sizeof(link) - 1);

	if (path[0] != '/' || length <= 0)
		return false;
	link[length] = 0;
	if ((size_t)length > n && !strcmp(link + length - n, deleted))
		link[(size_t)length - n] = 0;
	return strcmp(base_name(link), base_name(path)) != 0;
}

static int open_map_file(int process, const char *path, const struct wire_request *r,
			 struct opener_file *ret, bool *ret_is_doubtful)
{
	char name[64];
	int fd;

	*ret_is_doubtful = false;
	if (!r->end)
		return -ENOENT;
	snprintf(name, sizeof(name), "map_files/%llx-%llx", (unsigned long long)r->start,
		 (unsigned long long)r->end);
	fd = openat(process, name, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_is_doubtful = is_of_another_name(process, name, path);
	return opener_open_in_earnest(fd, ret);
}

static int open_exe(int task, const struct wire_request *r, struct opener_file *ret)
{
	int fd = openat(task, "exe", O_PATH | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (!is_same_inode(fd, r->ino)) {
		close(fd);
		return -ENOENT;
	}
	return opener_open_in_earnest(fd, ret);
}

/* By path below root, a directory descriptor. Without a build-id for the reader to check, the inode
 * decides; it may honestly differ between /proc and stat on stacked file systems, hence the order.
 */
static int open_path(int root, const char *path, const struct wire_request *r,
		     struct opener_file *ret)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

	if (fd < 0)
		return -errno;
	if (!r->build_id_len && !is_same_inode((int)fd, r->ino)) {
		close((int)fd);
		return -ESTALE;
	}
	return opener_open_in_earnest((int)fd, ret);
}

static int open_below_root(int task, const char *path, const struct wire_request *r,
			   struct opener_file *ret)
{
	int root = openat(task, "root", O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	if (root < 0)
		return -errno;
	err = open_path(root, path, r, ret);
	close(root);
	return err;
}

static int open_host_path(const char *path, const struct wire_request *r, struct opener_file *ret)
{
	int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	if (root < 0)
		return -errno;
	err = open_path(root, path, r, ret);
	close(root);
	ret->is_host_path = true;
	return err;
}

static int open_otherwise(int process, const char *path, const struct wire_request *r,
			  struct opener_file *ret)
{
	int task = opener_task_directory(process), at = task >= 0 ? task : process;
	int err = open_exe(at, r, ret);

	if (err && path[0] == '/')
		err = open_below_root(at, path, r, ret);
	if (task >= 0)
		close(task);
	return err;
}

static int open_of_process(int process, const char *path, const struct wire_request *r,
			   struct opener_file *ret)
{
	struct opener_file mapped;
	bool is_doubtful;
	int map_err = open_map_file(process, path, r, &mapped, &is_doubtful), err;

	if (map_err || is_doubtful) {
		err = open_otherwise(process, path, r, ret);
		if (!map_err && !err)
			close(mapped.fd);
		if (!err)
			return 0;
		if (map_err && err != -ENOENT && err != -ENOTDIR && err != -ELOOP)
			return err;
		if (map_err) /* EPERM: no CAP_CHECKPOINT_RESTORE */
			return map_err == -ENOENT ? -ESRCH : map_err;
	}
	*ret = mapped; /* even a doubtful one: the reader knows by its build-id */
	return 0;
}

static int open_any(const struct wire_request *r, const char *path, struct opener_file *ret)
{
	int process = opener_process_directory(r->tgid, r->process_start_ns), err = process;

	if (process >= 0) {
		err = open_of_process(process, path, r, ret);
		close(process);
	}
	if ((err == -ESRCH || err == -ENOENT) && r->build_id_len && path[0] == '/' &&
	    !open_host_path(path, r, ret))
		err = 0;
	return err;
}

int opener_files_get(struct opener_files *files, const struct wire_request *request,
		     const char *path, struct opener_file *ret, struct why *why)
{
	struct kept *kept;
	int err;

	HASH_FIND(hh, files->kept, &request->key, sizeof(request->key), kept);
	if (kept) {
		/* To the end: most recently used. */
		*ret = kept->file;
		HASH_DEL(files->kept, kept);
		HASH_ADD(hh, files->kept, key, sizeof(kept->key), kept);
		if (!kept->is_lost)
			return 0;
		close(kept->file.fd);
		mem_free(MEM_HELPERS, kept);
	}
	*ret = (struct opener_file){.fd = -1};
	err = open_any(request, path, ret);
	if (err == -ENOENT || err == -ESRCH || err == -ENXIO)
		return why_set(why, -ESRCH, "the file and the process that mapped it are gone");
	if (err == -ESTALE)
		return why_set(why, err, "another file lies at its path now");
	if (err)
		return why_set(why, err, "cannot open: %s", strerror(-err));
	err = keep(files, request->key, ret);
	if (err) {
		close(ret->fd);
		return why_set(why, err, "out of memory");
	}
	return 0;
}

static uint32_t mount_namespace(int process)
{
	char link[64];
	ssize_t n = readlinkat(process, "ns/mnt", link, sizeof(link) - 1);

	if (n <= 0)
		return 0;
	link[n] = 0;
	return strncmp(link, "mnt:[", 5) ? 0 : (uint32_t)strtoul(link + 5, NULL, 10);
}

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

int opener_process_open(uint32_t tgid, struct opener_process *ret, struct why *why)
{
	static const char *const names[] = {"stat", "status", "cgroup", "maps"};
	int process = opener_process_directory(tgid, 0), task = -1, at;
	ssize_t n;

	if (process < 0)
		return why_set(why, process, "no process %u", tgid);
	n = readlinkat(process, "exe", ret->exe, sizeof(ret->exe) - 1);
	if (n < 0) {
		task = opener_task_directory(process);
		if (task >= 0)
			n = readlinkat(task, "exe", ret->exe, sizeof(ret->exe) - 1);
	}
	ret->exe[n > 0 ? n : 0] = 0;
	at = task >= 0 ? task : process;
	ret->mount_namespace = mount_namespace(at);
	for (size_t i = 0; i < WIRE_FILES_MAX; i++)
		ret->fds[i] = openat(i == 3 ? at : process, names[i], O_RDONLY | O_CLOEXEC);
	if (task >= 0)
		close(task);
	close(process);
	if (ret->fds[0] >= 0 && ret->fds[1] >= 0)
		return 0;
	opener_process_close(ret);
	return why_set(why, -ESRCH, "process %u has ended", tgid);
}

void opener_process_close(struct opener_process *process)
{
	close_all(process->fds, ARRAY_SIZE(process->fds));
}

void opener_memory_close(struct opener_memory *memory)
{
	close_all(memory->fds, ARRAY_SIZE(memory->fds));
}

int opener_memory_open(const struct wire_request *request, struct opener_memory *ret,
		       struct why *why)
{
	int process = opener_process_directory(request->tgid, request->process_start_ns), task, at;
	struct opener_file program = {.fd = -1};
	ssize_t n;
	int exe;

	if (process < 0)
		return why_set(why, process, "no process %u", request->tgid);
	task = opener_task_directory(process);
	at = task >= 0 ? task : process;
	n = readlinkat(at, "exe", ret->exe, sizeof(ret->exe) - 1);
	ret->exe[n > 0 ? n : 0] = 0;
	ret->fds[0] = openat(at, "maps", O_RDONLY | O_CLOEXEC);
	ret->fds[1] = openat(at, "mem", O_RDONLY | O_CLOEXEC);
	exe = openat(at, "exe", O_PATH | O_CLOEXEC);
	if (exe >= 0 && opener_open_in_earnest(exe, &program))
		program.fd = -1;
	ret->fds[2] = program.fd;
	if (task >= 0)
		close(task);
	close(process);
	if (ret->fds[0] >= 0 && ret->fds[1] >= 0)
		return 0;
	opener_memory_close(ret);
	return why_set(why, -ESRCH, "process %u has ended", request->tgid);
}

struct debug_roots {
	int process, host; /* -1: none */
};

static void roots_open(const struct wire_request *r, struct debug_roots *ret)
{
	int process = opener_process_directory(r->tgid, r->process_start_ns), task;

	ret->process = -1;
	ret->host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return;
	task = opener_task_directory(process);
	ret->process = openat(task >= 0 ? task : process, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (task >= 0)
		close(task);
	close(process);
}

static int debug_open_one(int root, const char *path, struct opener_file *ret)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
	long fd = root < 0 ? -1 : syscall(SYS_openat2, root, path, &how, sizeof(how));

	return fd < 0 ? -ENOENT : opener_open_in_earnest((int)fd, ret);
}

size_t opener_debug_open(const struct wire_request *request, const char *text, size_t bytes,
			 int *fds, size_t max, uint32_t *ret_by_link)
{
	struct opener_file files[WIRE_FDS_MAX];
	struct debug_roots roots;
	size_t count = 0;

	*ret_by_link = 0;
	roots_open(request, &roots);
	for (size_t at = strnlen(text, bytes) + 1; at + 1 < bytes && count < max;) {
		const char *path = text + at;
		bool is_known = false;

		at += strnlen(path, bytes - at) + 1;
		/* Of a process that has ended ours is tried: the reader knows the right file. */
		if (debug_open_one(*path == 'H' || roots.process < 0 ? roots.host : roots.process,
				   path + 1, &files[count]))
			continue;
		for (size_t i = 0; i < count; i++)
			is_known |= files[i].dev == files[count].dev &&
				    files[i].ino == files[count].ino;
		if (is_known) {
			close(files[count].fd);
			continue;
		}
		*ret_by_link |= (uint32_t)(*path == 'L') << count;
		fds[count] = files[count].fd;
		count++;
	}
	if (roots.process >= 0)
		close(roots.process);
	if (roots.host >= 0)
		close(roots.host);
	return count;
}
