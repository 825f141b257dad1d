/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stallfs: a file system that works until SIGUSR1 and then never answers again.
 *
 *   stallfs DIRECTORY PROGRAM open|read
 *
 * DIRECTORY holds one file, "stalled", a copy of PROGRAM that can be executed. After SIGUSR1 opens
 * (or reads; pages past 12 KiB are dropped from the cache first) wait for ever; what already runs
 * from it runs on. Prints "ready" when mounted, "stalled" when it stalls. Its end frees all.
 */
#define FUSE_USE_VERSION 34
#include <fuse_lowlevel.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "workload.h"

#define INO	   2
#define CODE_BYTES 0x3000

static int program = -1;
static int must_stall_opens;
static volatile sig_atomic_t is_stalled;

static void on_signal(int sig)
{
	(void)sig;
	is_stalled = 1;
}

static void attributes(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	if (ino == INO)
		fstat(program, st);
	st->st_mode = ino == INO ? S_IFREG | 0755 : S_IFDIR | 0755;
	st->st_ino = ino;
	st->st_nlink = 1;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {.ino = INO, .attr_timeout = 600, .entry_timeout = 600};

	if (parent != FUSE_ROOT_ID || strcmp(name, "stalled")) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	attributes(INO, &e.attr);
	fuse_reply_entry(req, &e);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct stat st;

	(void)info;
	attributes(ino, &st);
	fuse_reply_attr(req, &st, 600);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	(void)ino;
	if (is_stalled && must_stall_opens)
		return; /* no answer, ever */
	info->keep_cache = 1;
	fuse_reply_open(req, info);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *info)
{
	static char bytes[1 << 17];
	ssize_t n;

	(void)ino;
	(void)info;
	if (is_stalled)
		return; /* no answer, ever */
	n = pread(program, bytes, size < sizeof(bytes) ? size : sizeof(bytes), offset);
	fuse_reply_buf(req, bytes, n > 0 ? (size_t)n : 0);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = on_lookup,
	.getattr = on_getattr,
	.open = on_open,
	.read = on_read,
};

static void serve(struct fuse_session *session)
{
	struct fuse_buf buf = {0};
	int was_told = 0;

	while (!fuse_session_exited(session)) {
		int n = fuse_session_receive_buf(session, &buf);

		if (is_stalled && !was_told) {
			fuse_lowlevel_notify_inval_inode(session, INO, CODE_BYTES, 0);
			puts("stalled");
			fflush(stdout);
			was_told = 1;
		}
		if (n == -EINTR)
			continue;
		if (n <= 0)
			return;
		fuse_session_process_buf(session, &buf);
	}
}

int main(int argc, char **argv)
{
	char *fuse_argv[] = {argv[0], "-oallow_other,dev,suid", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
	struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: wakes the loop */
	struct fuse_session *session;

	if (argc != 4)
		return 2;
	must_stall_opens = !strcmp(argv[3], "open");
	program = open(argv[2], O_RDONLY | O_CLOEXEC);
	must(program >= 0, argv[2]);
	sigaction(SIGUSR1, &action, NULL);
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	must(session && !fuse_session_mount(session, argv[1]), "mount");
	puts("ready");
	fflush(stdout);
	serve(session);
	fuse_session_unmount(session);
	return 0;
}
