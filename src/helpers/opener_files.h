/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opener's work: finding the file behind a mapping, and the descriptors it keeps. Any call here
 * may block for ever in a foreign file system; main watches the clock.
 */
#ifndef FLYBALL_HELPERS_OPENER_FILES_H
#define FLYBALL_HELPERS_OPENER_FILES_H

#include "helpers_wire.h"

/* /proc/TGID, of the process that began at start_ns (0: unchecked). -ESRCH: gone. */
int opener_process_directory(uint32_t tgid, uint64_t start_ns);
/* When the leader has ended its threads still have what it lost: the directory of one of them, or
 * -1. */
int opener_task_directory(int process);
/* Field 22 of /proc/PID/stat; 0 when it cannot be read. */
uint64_t opener_start_ticks(int process);
/* Turns an O_PATH descriptor (taken) into a readable one, if it is a regular file. */
struct opener_file;
int opener_open_in_earnest(int path_fd, struct opener_file *ret);

struct opener_files;
int opener_files_new(struct opener_files **ret, struct why *why);

struct opener_file {
	int fd; /* kept here, not the caller's to close */
	uint64_t dev, ino, mtime_ns;
	bool is_layered; /* overlayfs: the kernel may have another inode below a mapping */
	bool is_host_path;
};
/* The kept file of request->key, opened now if need be. path may be "". Fails with -ESTALE where
 * another file was found, -ESRCH where nothing is left, -EACCES. */
int opener_files_get(struct opener_files *files, const struct wire_request *request,
		     const char *path, struct opener_file *ret, struct why *why);
/* Opens what may be debug files of request's file, listed in text as WIRE_DEBUG says; at most max.
 * Bit i of *ret_by_link: fds[i] is by link. Returns how many; they are the caller's. */
size_t opener_debug_open(const struct wire_request *request, const char *text, size_t bytes,
			 int *fds, size_t max, uint32_t *ret_by_link);
void opener_files_release(struct opener_files *files, uint64_t key);

/* Texts of /proc/TGID for a scan. fds of stat, status, cgroup, maps; -1 where there is none. */
struct opener_process {
	int fds[WIRE_FILES_MAX];
	uint32_t mount_namespace;
	char exe[WIRE_PATH_MAX];
};
int opener_process_open(uint32_t tgid, struct opener_process *ret, struct why *why);
void opener_process_close(struct opener_process *process);

/* A process's memory: fds of maps, mem and its program's file; -1 where there is none. */
#define OPENER_MEMORY_FILES 3
struct opener_memory {
	int fds[OPENER_MEMORY_FILES];
	char exe[WIRE_PATH_MAX];
};
int opener_memory_open(const struct wire_request *request, struct opener_memory *ret,
		       struct why *why);
void opener_memory_close(struct opener_memory *memory);

#endif
