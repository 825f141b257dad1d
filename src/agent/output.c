// SPDX-License-Identifier: Apache-2.0
/*
 * output: a file is written in the directory of its target without a name (O_TMPFILE) and put in
 * its place when whole, so a reader never sees half a profile, a failure leaves the old file, and
 * even SIGKILL leaves nothing behind. Where the file system knows no such files it has a temporary
 * name from the start. Devices and FIFOs are written directly. Links are not followed to regular
 * files: the name a user gave is the name replaced.
 *
 * A link cannot replace, only a rename can: so a file without a name gets a temporary one just
 * before. These are kept in a static table, so that a signal handler can unlink them.
 */
#include "record_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096

static char temporary[AGENT_OUTPUTS_MAX][PATH_BYTES + 32];
static bool is_taken[AGENT_OUTPUTS_MAX];

struct output {
	const char *path;
	enum profile_format format;
	int fd;	  /* -1: opened when written (FIFO) */
	int slot; /* in temporary[], -1: written directly */
	bool is_nameless;
	struct buf pending;
};

static int output_open_direct(struct output *out, struct why *why)
{
	struct stat st;

	if (!strcmp(out->path, "-")) {
		out->fd = dup(STDOUT_FILENO);
		return out->fd < 0 ? why_set(why, -errno, "stdout is closed") : 0;
	}
	if (stat(out->path, &st) == 0 && S_ISFIFO(st.st_mode)) {
		if (access(out->path, W_OK))
			return why_set(why, -errno, "cannot write %s: %s", out->path,
				       strerror(errno));
		return 0; /* opened when there is something to say: a reader may come late */
	}
	out->fd = open(out->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	if (out->fd < 0)
		return why_set(why, -errno, "cannot write %s: %s", out->path, strerror(errno));
	return 0;
}

static int output_slot(void)
{
	for (int i = 0; i < AGENT_OUTPUTS_MAX; i++) {
		if (!is_taken[i])
			return i;
	}
	return -1;
}

/* Bytes of the path up to and with its last slash. */
static int directory_bytes(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (int)(slash - path) + 1 : 0;
}

/* Makes the file under a name that nobody has, or gives that name to the open one. */
static int output_make(struct output *out, const char *name)
{
	char self[48];

	if (!out->is_nameless) {
		out->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		return out->fd < 0 ? -errno : 0;
	}
	snprintf(self, sizeof(self), "/proc/self/fd/%d", out->fd);
	return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

/* The first byte comes last: a signal handler finds the whole name or none. */
static void slot_set(int slot, const char name[PATH_BYTES + 32])
{
	memcpy(temporary[slot] + 1, name + 1, PATH_BYTES + 31);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(volatile char *)temporary[slot] = name[0];
}

static void slot_clear(int slot)
{
	*(volatile char *)temporary[slot] = 0;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static int output_name_temporary(struct output *out)
{
	int dir_bytes = directory_bytes(out->path), err = -EEXIST;
	char name[PATH_BYTES + 32] = "";
	uint64_t random = 0;

	for (int tries = 0; tries < 8 && err == -EEXIST; tries++) {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			random = clock_monotonic_ns();
		slot_clear(out->slot);
		snprintf(name, sizeof(name), "%.*s.%s.%08x.tmp", dir_bytes, out->path, "flyball",
			 (unsigned int)random);
		slot_set(out->slot, name);
		err = output_make(out, name);
	}
	if (err)
		slot_clear(out->slot);
	return err;
}

static int output_open_temporary(struct output *out, struct why *why)
{
	char directory[PATH_BYTES];
	int slot = output_slot(), err;

	if (slot < 0)
		return why_set(why, -E2BIG, "more than %d outputs", AGENT_OUTPUTS_MAX);
	snprintf(directory, sizeof(directory), "%.*s.", directory_bytes(out->path), out->path);
	out->slot = slot;
	out->fd = open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	out->is_nameless = out->fd >= 0;
	err = out->is_nameless ? 0 : output_name_temporary(out);
	if (err)
		return why_set(why, err, "cannot write %s: %s", out->path, strerror(-err));
	is_taken[slot] = true;
	return 0;
}

static bool is_direct(const char *path, struct why *why, int *ret_err)
{
	struct stat st;

	*ret_err = 0;
	if (!strcmp(path, "-"))
		return true;
	if (lstat(path, &st)) {
		if (errno != ENOENT)
			*ret_err =
				why_set(why, -errno, "cannot write %s: %s", path, strerror(errno));
		return false;
	}
	if (S_ISREG(st.st_mode))
		return false;
	if (S_ISLNK(st.st_mode) && (stat(path, &st) || S_ISREG(st.st_mode))) {
		*ret_err = why_set(why, -ELOOP,
				   "cannot write %s: it is a symbolic link; name the file itself",
				   path);
		return false;
	}
	if (S_ISDIR(st.st_mode))
		*ret_err = why_set(why, -EISDIR, "cannot write %s: it is a directory", path);
	else if (!S_ISCHR(st.st_mode) && !S_ISFIFO(st.st_mode))
		*ret_err = why_set(
			why, -EINVAL,
			"cannot write %s: it is neither a file, a FIFO nor a character device",
			path);
	return true;
}

int output_open(const char *path, struct output **ret, struct why *why)
{
	struct output *out;
	bool direct;
	int err;

	if (strlen(path) >= PATH_BYTES)
		return why_set(why, -ENAMETOOLONG, "the output name is too long");
	direct = is_direct(path, why, &err);
	if (err)
		return err;
	out = mem_alloc(MEM_AGENT, sizeof(*out));
	if (!out)
		return why_set(why, -ENOMEM, "out of memory");
	out->path = path;
	out->fd = out->slot = -1;
	buf_init(&out->pending, MEM_AGENT, 1 << 20);
	out->format = PROFILE_FOLDED; /* of "-": the one form made for pipes */
	err = strcmp(path, "-") ? profile_format_of(path, &out->format, why) : 0;
	if (!err)
		err = direct ? output_open_direct(out, why) : output_open_temporary(out, why);
	if (err) {
		output_abandon(out);
		return err;
	}
	*ret = out;
	return 0;
}

const char *output_path(const struct output *out)
{
	return out->path;
}

static int output_flush(struct output *out)
{
	size_t done = 0;

	while (done < out->pending.len) {
		ssize_t n = write(out->fd, out->pending.data + done, out->pending.len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	buf_reset(&out->pending);
	return 0;
}

/* Writers give many small pieces; the disk gets few large ones. */
static int output_sink(void *ctx, const void *data, size_t bytes)
{
	struct output *out = ctx;
	const char *from = data;

	while (bytes) {
		size_t room = 65536 - out->pending.len;
		size_t take = bytes < room ? bytes : room;
		int err;

		buf_add(&out->pending, from, take);
		if (out->pending.err)
			return out->pending.err;
		from += take;
		bytes -= take;
		if (out->pending.len < 65536)
			continue;
		err = output_flush(out);
		if (err)
			return err;
	}
	return 0;
}

int output_waits(const struct output *out)
{
	return out->fd < 0;
}

/* A FIFO without a reader: wait for one. Ctrl-C gives up (its handler does not return). */
static int output_open_fifo(struct output *out)
{
	bool is_told = false;

	while (out->fd < 0) {
		out->fd = open(out->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
		if (out->fd < 0 && errno != ENXIO && errno != EINTR)
			return -errno;
		if (out->fd < 0 && !is_told)
			log_warn("waiting for a reader of %s (Ctrl-C gives up)", out->path);
		is_told = true;
		if (out->fd < 0)
			poll(NULL, 0, 50);
	}
	return fcntl(out->fd, F_SETFL, O_WRONLY) ? -errno : 0;
}

static int output_fill(struct output *out, const struct profile *profile, bool per_thread,
		       struct why *why)
{
	struct profile_write_options options = {.per_thread = per_thread};
	int err = profile_write(profile, out->format, &options, output_sink, out, why);

	if (!err)
		err = output_flush(out);
	if (!err && out->slot >= 0 && fsync(out->fd) && errno != EINVAL && errno != EROFS)
		err = -errno;
	return err;
}

/* Puts the whole file in its place. */
static int output_place(struct output *out)
{
	if (rename(temporary[out->slot], out->path))
		return -errno;
	slot_clear(out->slot);
	return 0;
}

int output_write(struct output *out, const struct profile *profile, bool per_thread,
		 struct why *why)
{
	int err = out->fd < 0 ? output_open_fifo(out) : 0;

	if (!err)
		err = output_fill(out, profile, per_thread, why);
	if (!err && out->is_nameless && output_name_temporary(out)) {
		/* What has no name cannot have one here: once more, into a file that has. */
		close(out->fd);
		out->fd = -1;
		out->is_nameless = false;
		err = output_name_temporary(out);
		if (!err)
			err = output_fill(out, profile, per_thread, why);
	}
	if (!err && out->slot >= 0)
		err = output_place(out);
	if (err && why && !why->text[0])
		why_set(why, err, "%s", strerror(-err));
	if (err)
		why_prefix(why, "cannot write %s", out->path);
	return err;
}

void output_abandon(struct output *out)
{
	if (!out)
		return;
	if (out->fd >= 0)
		close(out->fd);
	if (out->slot >= 0) {
		if (temporary[out->slot][0])
			unlink(temporary[out->slot]);
		slot_clear(out->slot);
		is_taken[out->slot] = false;
	}
	buf_done(&out->pending);
	mem_free(MEM_AGENT, out);
}

int agent_output_write(const char *path, const struct profile *profile, struct why *why)
{
	struct output *out = NULL;
	int err = output_open(path, &out, why);

	if (!err && out)
		err = output_write(out, profile, false, why);
	output_abandon(out);
	return err;
}

void output_abandon_all(void)
{
	for (int i = 0; i < AGENT_OUTPUTS_MAX; i++) {
		if (temporary[i][0])
			unlink(temporary[i]);
	}
}
