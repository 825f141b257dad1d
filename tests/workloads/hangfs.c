// SPDX-License-Identifier: Apache-2.0
/*
 * hangfs DIRECTORY: a file system that never answers some questions. Files open0..open9 are opened
 * once and never again; read0..read9 open and never give a byte; fine is a copy of this program.
 * Prints "ready" when mounted; lets everybody go when it is killed.
 */
#define FUSE_USE_VERSION 34
#include <fuse_lowlevel.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EACH	   10
#define INO_OPEN   10
#define INO_READ   20
#define INO_FINE   30
#define FILE_BYTES (1 << 20)

static int opened[EACH];
static int own = -1;

static int attributes(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_nlink = 1;
	st->st_size = FILE_BYTES;
	st->st_mode = S_IFREG | 0755;
	if (ino == FUSE_ROOT_ID)
		st->st_mode = S_IFDIR | 0755;
	else if (ino == INO_FINE)
		return fstat(own, st) ? errno : 0;
	else if (ino < INO_OPEN || ino >= INO_FINE)
		return ENOENT;
	return 0;
}

static fuse_ino_t number_of(const char *name)
{
	size_t len = strlen(name);
	int digit = len == 5 ? name[4] - '0' : -1;

	if (!strcmp(name, "fine"))
		return INO_FINE;
	if (digit < 0 || digit >= EACH)
		return 0;
	if (!strncmp(name, "open", 4))
		return INO_OPEN + (fuse_ino_t)digit;
	return strncmp(name, "read", 4) ? 0 : INO_READ + (fuse_ino_t)digit;
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = {
		.ino = number_of(name), .attr_timeout = 60, .entry_timeout = 60};

	if (parent != FUSE_ROOT_ID || !e.ino || attributes(e.ino, &e.attr)) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	e.attr.st_ino = e.ino;
	fuse_reply_entry(req, &e);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	struct stat st;
	int err = attributes(ino, &st);

	(void)info;
	st.st_ino = ino;
	if (err)
		fuse_reply_err(req, err);
	else
		fuse_reply_attr(req, &st, 60);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *info)
{
	if (ino >= INO_OPEN && ino < INO_OPEN + EACH && opened[ino - INO_OPEN]++)
		return; /* no answer, ever */
	info->keep_cache = 0;
	fuse_reply_open(req, info);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
		    struct fuse_file_info *info)
{
	static char bytes[1 << 17];
	ssize_t n;

	(void)info;
	if (ino != INO_FINE)
		return; /* no answer, ever */
	n = pread(own, bytes, size < sizeof(bytes) ? size : sizeof(bytes), offset);
	fuse_reply_buf(req, bytes, n > 0 ? (size_t)n : 0);
}

static const struct fuse_lowlevel_ops ops = {
	.lookup = on_lookup,
	.getattr = on_getattr,
	.open = on_open,
	.read = on_read,
};

int main(int argc, char **argv)
{
	char *fuse_argv[] = {argv[0], "-oallow_other,dev,suid", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(2, fuse_argv);
	struct fuse_session *session;
	struct fuse_buf buf = {0};

	own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (argc != 2 || own < 0)
		return 2;
	session = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	if (!session || fuse_session_mount(session, argv[1]))
		return 4;
	puts("ready");
	fflush(stdout);
	while (!fuse_session_exited(session)) {
		int n = fuse_session_receive_buf(session, &buf);

		if (n == -EINTR)
			continue;
		if (n <= 0)
			break;
		fuse_session_process_buf(session, &buf);
	}
	fuse_session_unmount(session);
	return 0;
}
