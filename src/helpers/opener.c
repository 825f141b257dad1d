// SPDX-License-Identifier: Apache-2.0
/*
 * flyball-opener PARENT: opens files for the main process and hands them to the reader. Three
 * capabilities, no parsing. Descriptors: see helpers_wire.h. One request at a time, in order; each
 * is acked exactly once (and once more with WIRE_ACK_BUSY when the reader's queue was full).
 */
#include "opener_files.h"
#include "opener_perfmap.h"
#include "sandbox.h"

#include "abi/reasons.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct opener {
	struct opener_files *files;
	struct opener_perfmaps *maps;
	char packet[WIRE_PACKET_MAX];
};

static void ack(const struct wire_request *r, uint32_t state, const struct opener_file *file)
{
	struct wire_ack a = {.ticket = r->ticket, .state = state};

	if (file) {
		a.dev = file->dev;
		a.ino = file->ino;
		a.mtime_ns = file->mtime_ns;
		a.is_layered = file->is_layered;
	}
	send(WIRE_OPENER_REQUESTS, &a, sizeof(a), MSG_NOSIGNAL);
}

static void ack_failure(const struct wire_request *r, int err, const struct why *why)
{
	struct wire_ack a = {.ticket = r->ticket, .state = WIRE_ACK_DONE, .err = err};

	switch (err) {
	case -ESRCH:
		a.unnamed = FLY_UNNAMED_FILE_GONE;
		break;
	case -ESTALE:
		a.unnamed = FLY_UNNAMED_FILE_REPLACED;
		break;
	case -ENOENT: /* of perf maps and debug files alone */
		a.unnamed = wire_is_debug(r->op) ? FLY_UNNAMED_NO_SYMBOL : FLY_UNNAMED_ANONYMOUS;
		break;
	case -EBADMSG:
		a.unnamed = FLY_UNNAMED_FILE_INVALID;
		break;
	default:
		a.unnamed =
			r->op == WIRE_PERFMAP ? FLY_UNNAMED_MAP_REFUSED : FLY_UNNAMED_FILE_DENIED;
		break;
	}
	text_print(why->text, strlen(why->text), a.text, sizeof(a.text));
	send(WIRE_OPENER_REQUESTS, &a, sizeof(a), MSG_NOSIGNAL);
}

/* The job goes out after its ack, so that main knows of it before any answer. The reader's queue
 * being full is not waited for: an opener that waits opens nothing. */
static void pass(const struct wire_request *r, const void *rest, size_t rest_bytes,
		 const char *text, const int *fds, size_t fd_count)
{
	struct wire_request job = *r;
	char control[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)] __attribute__((aligned(8))) = {0};
	struct iovec parts[3];
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};

	job.text_bytes = (uint32_t)strlen(text) + 1;
	parts[0] = (struct iovec){&job, sizeof(job)};
	parts[1] = (struct iovec){(char *)text, job.text_bytes};
	parts[2] = (struct iovec){(void *)rest, rest_bytes};
	if (fd_count) {
		struct cmsghdr *c;

		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * fd_count);
	}
	if (sendmsg(WIRE_OPENER_JOBS, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		ack(r, WIRE_ACK_BUSY, NULL);
}

/* Puts those of descriptors that are there side by side, and says in r which they are. */
static size_t gather(struct wire_request *r, const int *descriptors, size_t max, int *fds)
{
	size_t count = 0;

	r->files = 0;
	for (size_t i = 0; i < max; i++) {
		if (descriptors[i] < 0)
			continue;
		r->files |= 1U << i;
		fds[count++] = descriptors[i];
	}
	return count;
}

static void serve_scan(const struct wire_request *request)
{
	struct wire_request r = *request;
	struct opener_process process;
	int fds[WIRE_FILES_MAX];
	size_t count;
	struct why why;
	int err = opener_process_open(r.tgid, &process, &why);

	if (err) {
		ack_failure(&r, err, &why);
		return;
	}
	r.mount_namespace = process.mount_namespace;
	count = gather(&r, process.fds, WIRE_FILES_MAX, fds);
	ack(&r, WIRE_ACK_PASSED, NULL);
	pass(&r, NULL, 0, process.exe, fds, count);
	opener_process_close(&process);
}

static void serve_context(const struct wire_request *request)
{
	struct wire_request r = *request;
	struct opener_memory memory;
	int fds[OPENER_MEMORY_FILES];
	size_t count;
	struct why why;
	int err = opener_memory_open(&r, &memory, &why);

	if (err) {
		ack_failure(&r, err, &why);
		return;
	}
	count = gather(&r, memory.fds, OPENER_MEMORY_FILES, fds);
	ack(&r, WIRE_ACK_PASSED, NULL);
	pass(&r, NULL, 0, memory.exe, fds, count);
	opener_memory_close(&memory);
}

/* fd: what came with the request, and goes on behind the file; -1: nothing. */
static void serve_file(struct opener *o, const struct wire_request *request, const char *path,
		       int fd, const void *rest, size_t rest_bytes)
{
	struct wire_request r = *request;
	struct opener_file file;
	int fds[2];
	struct why why;
	int err = opener_files_get(o->files, &r, path, &file, &why);

	if (err) {
		ack_failure(&r, err, &why);
		return;
	}
	if (r.op == WIRE_HOLD) {
		ack(&r, WIRE_ACK_DONE, &file);
		return;
	}
	fds[0] = file.fd;
	fds[1] = fd;
	r.is_host_path = file.is_host_path;
	ack(&r, WIRE_ACK_PASSED, &file);
	pass(&r, rest, rest_bytes, "", fds, fd >= 0 ? 2 : 1);
}

static void serve_perfmap(struct opener *o, const struct wire_request *r, const void *rest,
			  size_t rest_bytes)
{
	struct opener_perfmap map;
	struct opener_file file = {.fd = -1};
	struct why why;
	int err = opener_perfmap_open(o->maps, r, &map, &why);

	if (err) {
		ack_failure(r, err, &why);
		return;
	}
	file.ino = map.stamp;
	if (map.stamp == r->ino) {
		ack(r, WIRE_ACK_DONE, &file);
	} else {
		ack(r, WIRE_ACK_PASSED, &file);
		pass(r, rest, rest_bytes, "", &map.fd, 1);
	}
	close(map.fd);
}

static void serve_perfmap_hold(struct opener *o, const struct wire_request *r)
{
	struct why why;
	int err = opener_perfmap_hold(o->maps, r, &why);

	if (err)
		ack_failure(r, err, &why);
	else
		ack(r, WIRE_ACK_DONE, NULL);
}

static void serve_debug(struct opener *o, const struct wire_request *request, const char *text,
			int fd, const void *rest, size_t rest_bytes)
{
	struct wire_request r = *request;
	struct opener_file file;
	int fds[WIRE_FDS_MAX];
	uint32_t by_link;
	struct why why;
	size_t count;
	int err = opener_files_get(o->files, &r, text, &file, &why);

	if (err) {
		ack_failure(&r, err, &why);
		return;
	}
	fds[0] = file.fd;
	count = opener_debug_open(&r, text, r.text_bytes, fds + 1, WIRE_DEBUG_MAX, &by_link);
	/* Lines may be in the file itself. */
	if (!count && r.op != WIRE_DEBUG_LINES) {
		why_set(&why, -ENOENT, "there is no separate debug file");
		ack_failure(&r, -ENOENT, &why);
		return;
	}
	r.files = by_link << 1;
	r.is_host_path = file.is_host_path;
	ack(&r, WIRE_ACK_PASSED, &file);
	fds[count + 1] = fd;
	pass(&r, rest, rest_bytes, "", fds, count + (fd >= 0 ? 2 : 1));
	for (size_t i = 0; i < count; i++)
		close(fds[i + 1]);
}

/* Of no file but the one that came; fd: -1 where none did. */
static void serve_sent(const struct wire_request *r, int fd, const void *rest, size_t rest_bytes)
{
	ack(r, WIRE_ACK_PASSED, NULL);
	pass(r, rest, rest_bytes, "", &fd, fd >= 0);
}

static void serve(struct opener *o, size_t bytes, int fd)
{
	struct wire_request r;
	const char *path, *rest;
	size_t rest_bytes;

	if (bytes < sizeof(r))
		return;
	memcpy(&r, o->packet, sizeof(r));
	path = o->packet + sizeof(r);
	if (!r.text_bytes || r.text_bytes > bytes - sizeof(r) || path[r.text_bytes - 1])
		return;
	rest = path + r.text_bytes;
	rest_bytes = bytes - sizeof(r) - r.text_bytes;
	switch (r.op) {
	case WIRE_RELEASE:
		opener_files_release(o->files, r.key);
		ack(&r, WIRE_ACK_DONE, NULL);
		break;
	case WIRE_VDSO:
	case WIRE_VDSO_TABLE:
		ack(&r, WIRE_ACK_PASSED, NULL);
		pass(&r, rest, rest_bytes, "", NULL, 0);
		break;
	case WIRE_SCAN:
		serve_scan(&r);
		break;
	case WIRE_CONTEXT:
		serve_context(&r);
		break;
	case WIRE_DEBUG:
	case WIRE_DEBUG_LINES:
	case WIRE_DEBUG_DIGEST:
	case WIRE_DEBUG_PACK:
		serve_debug(o, &r, path, fd, rest, rest_bytes);
		break;
	case WIRE_FETCHED:
	case WIRE_FETCHED_LINES:
	case WIRE_PACKED_NAMES:
	case WIRE_PACKED_INFO:
		serve_sent(&r, fd, rest, rest_bytes);
		break;
	case WIRE_PERFMAP_HOLD:
		serve_perfmap_hold(o, &r);
		break;
	case WIRE_PERFMAP:
		serve_perfmap(o, &r, rest, rest_bytes);
		break;
	default:
		serve_file(o, &r, path, fd, rest, rest_bytes);
		break;
	}
}

/* A descriptor comes from main alone, and never of a foreign file. */
static ssize_t receive(struct opener *o, int *ret_fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = {o->packet, sizeof(o->packet)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(WIRE_OPENER_REQUESTS, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&message);

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return n;
}

static int confine(int parent, struct why *why)
{
	static const cap_value_t keep[] = {CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH,
					   CAP_CHECKPOINT_RESTORE};
	/* openat never writes nor creates. */
	static const struct sandbox_rule rules[] = {
		{SCMP_SYS(openat), 2, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY},
		{SCMP_SYS(openat2), -1, 0, 0},
		{SCMP_SYS(fstat), -1, 0, 0},
		{SCMP_SYS(fstatfs), -1, 0, 0},
		{SCMP_SYS(newfstatat), -1, 0, 0},
		{SCMP_SYS(readlinkat), -1, 0, 0},
		{SCMP_SYS(read), -1, 0, 0},
		{SCMP_SYS(close), -1, 0, 0},
		{SCMP_SYS(fcntl), -1, 0, 0},
		{SCMP_SYS(getdents64), -1, 0, 0},
		{SCMP_SYS(lseek), -1, 0, 0},
		{SCMP_SYS(recvmsg), -1, 0, 0},
		{SCMP_SYS(sendto), -1, 0, 0},
		{SCMP_SYS(sendmsg), -1, 0, 0},
		{SCMP_SYS(brk), -1, 0, 0},
		{SCMP_SYS(mmap), -1, 0, 0},
		{SCMP_SYS(mremap), -1, 0, 0},
		{SCMP_SYS(munmap), -1, 0, 0},
		{SCMP_SYS(madvise), -1, 0, 0},
		{SCMP_SYS(clock_gettime), -1, 0, 0},
		{SCMP_SYS(restart_syscall), -1, 0, 0},
		{SCMP_SYS(rt_sigreturn), -1, 0, 0},
		{SCMP_SYS(exit_group), -1, 0, 0},
	};
	int err = sandbox_drop(keep, ARRAY_SIZE(keep), why);

	if (!err)
		err = sandbox_follow_parent(parent, why);
	return err ? err : sandbox_filter(rules, ARRAY_SIZE(rules), why);
}

int main(int argc, char **argv)
{
	static struct opener opener;
	struct wire_ack ready = {.ticket = WIRE_TICKET_NONE};
	uint64_t parent;
	struct why why = {""};
	int err;

	if (argc != 2 || text_parse_u64(argv[1], 1, INT32_MAX, &parent))
		return 2;
	/* Short-lived programs are gone in milliseconds: go ahead of others where we may. */
	setpriority(PRIO_PROCESS, 0, -5);
	err = sandbox_start(WIRE_OPENER_JOBS, (int)parent, &why);
	if (!err)
		err = opener_files_new(&opener.files, &why);
	if (!err)
		err = opener_perfmaps_new(&opener.maps, &why);
	if (!err)
		err = confine((int)parent, &why);
	if (err) {
		ready.err = err;
		memcpy(ready.text, why.text, sizeof(ready.text) - 1);
	}
	send(WIRE_OPENER_REQUESTS, &ready, sizeof(ready), MSG_NOSIGNAL);
	while (!err) {
		int fd = -1;
		ssize_t n = receive(&opener, &fd);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		serve(&opener, (size_t)n, fd);
		if (fd >= 0)
			close(fd);
	}
	return err ? 1 : 0;
}
