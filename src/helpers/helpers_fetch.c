// SPDX-License-Identifier: Apache-2.0
/* Main's side of flyball-fetcher: a queue, the cache, and one process that is started when there is
 * something to fetch. */
#include "helpers_fetch.h"

#include "fetch_cache.h"
#include "helpers_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS     5000000000ULL
#define GRACE_NS     2000000000ULL /* the fetcher keeps the deadline itself */
#define RESTARTS_MAX 3

struct want {
	struct want *next;
	char id[FETCHER_ID_MAX];
	helpers_fetch_done done;
	void *ctx;
	/* An answer that is known already: */
	bool is_known;
	int err, fd;
};

/* One try for each build-id. */
struct tried {
	char id[FETCHER_ID_MAX]; /* key */
	int err;		 /* 0: it came; its file is in the cache, or was found wrong */
	bool is_lost;
	UT_hash_handle hh;
};

struct helpers_fetch {
	struct fetcher_begin begin;
	char program[640];
	int directory; /* of the cache */
	int epoll, event, socket;
	struct helper helper;
	uint64_t ended_user_ns, ended_system_ns;
	bool is_ready;
	unsigned int restarts;
	uint64_t spawned_ns, sent_ns, ticket;
	struct tried *tried;
	struct want *first, **last; /* the first one is under way when sent_ns is set */
	size_t count;
};

static bool is_url(const char *text)
{
	return !strncmp(text, "http://", 7) || !strncmp(text, "https://", 8);
}

/* Keeps what is a URL. */
static size_t urls_take(const char *urls, char *out, size_t size)
{
	size_t count = 0, len = 0;

	out[0] = 0;
	while (*urls) {
		size_t n = strcspn(urls, " \t\n");

		if (n && is_url(urls) && len + n + 2 <= size) {
			len += (size_t)snprintf(out + len, size - len, "%s%.*s", count ? " " : "",
						(int)n, urls);
			count++;
		} else if (n) {
			log_warn("debuginfod: %.*s is no http:// or https:// URL", (int)n, urls);
		}
		urls += n + (urls[n] != 0);
	}
	return count;
}

static int find_program(struct helpers_fetch *f, const char *directory, struct why *why)
{
	char where[512];

	helpers_directory(directory, where, sizeof(where));
	snprintf(f->program, sizeof(f->program), "%s/flyball-fetcher", where);
	if (access(f->program, X_OK))
		return why_set(why, -ENOENT, "%s is not there: flyball was built without libcurl",
			       f->program);
	return 0;
}

static int events_open(struct helpers_fetch *f, struct why *why)
{
	struct epoll_event event = {.events = EPOLLIN};

	f->epoll = epoll_create1(EPOLL_CLOEXEC);
	f->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (f->epoll < 0 || f->event < 0 || epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->event, &event))
		return why_set(why, -errno, "epoll: %s", strerror(errno));
	return 0;
}

int helpers_fetch_start(const struct helpers_fetch_options *options, struct helpers_fetch **ret,
			struct why *why)
{
	struct helpers_fetch *f = mem_alloc(MEM_HELPERS, sizeof(*f));
	int err;

	if (!f)
		return why_set(why, -ENOMEM, "out of memory");
	f->directory = f->epoll = f->event = f->socket = f->helper.pid = -1;
	f->last = &f->first;
	f->begin.bytes_max = options->bytes_max ? options->bytes_max : HELPERS_FETCH_BYTES_MAX;
	f->begin.deadline_ms =
		options->deadline_ms ? options->deadline_ms : HELPERS_FETCH_DEADLINE_MS;
	err = urls_take(options->urls, f->begin.urls, sizeof(f->begin.urls))
		      ? 0
		      : why_set(why, -EINVAL, "there is no URL of a debuginfod server");
	if (!err)
		err = find_program(f, options->directory, why);
	if (!err)
		err = fetch_cache_open(options->cache ? options->cache : HELPERS_FETCH_CACHE,
				       HELPERS_FETCH_CACHE_MAX, &f->directory, why);
	if (!err)
		err = events_open(f, why);
	if (err) {
		helpers_fetch_stop(f);
		return err;
	}
	*ret = f;
	return 0;
}

int helpers_fetch_fd(const struct helpers_fetch *fetch)
{
	return fetch->epoll;
}

/* ---------------------------------------------------------------- requests */
static void wake(struct helpers_fetch *f)
{
	uint64_t one = 1;
	ssize_t n = write(f->event, &one, sizeof(one));

	(void)n; /* full means readable, which is all it is for */
}

static void hex(const uint8_t *id, size_t len, char out[FETCHER_ID_MAX])
{
	for (size_t i = 0; i < len; i++)
		snprintf(out + 2 * i, 3, "%02x", id[i]);
}

int helpers_fetch_ask(struct helpers_fetch *f, const uint8_t *build_id, size_t build_id_len,
		      helpers_fetch_done done, void *ctx)
{
	struct want *want;

	if (!build_id_len || build_id_len > ELF_BUILD_ID_MAX)
		return -EINVAL;
	if (f->count >= HELPERS_FETCH_QUEUE_MAX)
		return -EAGAIN;
	want = mem_alloc(MEM_HELPERS, sizeof(*want));
	if (!want)
		return -ENOMEM;
	hex(build_id, build_id_len, want->id);
	want->done = done;
	want->ctx = ctx;
	want->fd = fetch_cache_find(f->directory, want->id);
	if (want->fd >= 0) {
		want->is_known = true;
	} else if (fetch_cache_is_negative(f->directory, want->id, HELPERS_FETCH_NEGATIVE_SEC)) {
		want->is_known = true;
		want->err = -ENOENT;
	}
	*f->last = want;
	f->last = &want->next;
	f->count++;
	wake(f);
	return 0;
}

/* Takes it out of the list and calls back. */
static void want_finish(struct helpers_fetch *f, struct want **at, int err, int fd,
			const char *text)
{
	struct want *want = *at;

	*at = want->next;
	if (f->last == &want->next)
		f->last = at;
	f->count--;
	want->done(want->ctx, err, fd, text);
	if (fd >= 0)
		close(fd);
	mem_free(MEM_HELPERS, want);
}

static void known_tell(struct helpers_fetch *f)
{
	for (struct want **at = &f->first; *at;) {
		struct want *want = *at;

		if (want->is_known)
			want_finish(f, at, want->err, want->err ? -1 : want->fd,
				    want->err ? "it was asked for before" : "");
		else
			at = &want->next;
	}
}

void helpers_fetch_verdict(struct helpers_fetch *f, const uint8_t *build_id, size_t build_id_len,
			   bool is_good)
{
	char id[FETCHER_ID_MAX] = "";
	int cached;

	if (!f || build_id_len > ELF_BUILD_ID_MAX)
		return;
	hex(build_id, build_id_len, id);
	cached = fetch_cache_find(f->directory, id);
	if (cached >= 0)
		close(cached);
	if (!is_good) {
		fetch_cache_remove(f->directory, id);
		fetch_cache_negative_add(f->directory, id);
	} else if (cached < 0) {
		fetch_cache_part_keep(f->directory, id);
	}
}

/* ---------------------------------------------------------------- the process */
static void fetcher_end(struct helpers_fetch *f)
{
	uint64_t user, system;

	if (f->helper.pid > 0) {
		helper_state(&f->helper, &user, &system);
		f->ended_user_ns += user;
		f->ended_system_ns += system;
		kill(f->helper.pid, SIGKILL);
		while (waitpid(f->helper.pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (f->socket >= 0)
		close(f->socket);
	f->helper.pid = f->socket = -1;
	f->is_ready = false;
}

/* What a server may be reached by. */
static size_t environment(char **out, size_t max)
{
	static const char *const kept[] = {
		"http_proxy=", "https_proxy=", "HTTPS_PROXY=",	 "no_proxy=",	 "NO_PROXY=",
		"all_proxy=",  "ALL_PROXY=",   "SSL_CERT_FILE=", "SSL_CERT_DIR="};
	size_t count = 0;

	for (char **e = environ; *e && count + 1 < max; e++) {
		for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
			if (!strncmp(*e, kept[i], strlen(kept[i])))
				out[count++] = *e;
			if (count + 1 == max)
				break;
		}
	}
	out[count] = NULL;
	return count;
}

static int fetcher_spawn(struct helpers_fetch *f)
{
	struct epoll_event event = {.events = EPOLLIN};
	char *envp[16];
	int fds[2], err;

	if (f->restarts > RESTARTS_MAX)
		return -EHOSTDOWN;
	f->restarts++;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -errno;
	for (int i = 0; i < 2; i++) {
		int high = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);

		close(fds[i]);
		fds[i] = high;
	}
	environment(envp, ARRAY_SIZE(envp));
	err = fds[0] < 0 || fds[1] < 0 ? -errno
				       : helper_exec(f->program, fds[1], -1, envp, &f->helper.pid);
	if (fds[1] >= 0)
		close(fds[1]);
	f->socket = fds[0];
	if (err || f->socket < 0) {
		f->helper.pid = -1;
		return err ? err : -EBADF;
	}
	f->spawned_ns = clock_monotonic_ns();
	epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->socket, &event);
	return send(f->socket, &f->begin, sizeof(f->begin), MSG_NOSIGNAL | MSG_DONTWAIT) < 0
		       ? -errno
		       : 0;
}

static int request_send(struct helpers_fetch *f, struct want *want)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
	struct fetcher_request request = {.ticket = ++f->ticket};
	struct iovec part = {&request, sizeof(request)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	int fd = fetch_cache_part_new(f->directory, want->id), err = 0;

	if (fd < 0)
		return fd;
	memcpy(request.build_id, want->id, sizeof(request.build_id));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(f->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		err = -errno;
	close(fd);
	if (!err)
		f->sent_ns = clock_monotonic_ns();
	return err;
}

static void tried_add(struct helpers_fetch *f, const char *id, int err)
{
	struct tried *t = mem_alloc(MEM_HELPERS, sizeof(*t));

	if (!t)
		return;
	memcpy(t->id, id, sizeof(t->id));
	t->err = err;
	HASH_ADD_STR(f->tried, id, t);
	if (t->is_lost)
		mem_free(MEM_HELPERS, t);
}

/* Another file of this build-id was there before: what came of it is the answer. */
static bool tried_find(struct helpers_fetch *f, struct want *want)
{
	struct tried *t;

	HASH_FIND_STR(f->tried, want->id, t);
	if (!t)
		return false;
	want->is_known = true;
	want->err = t->err;
	if (!t->err) {
		want->fd = fetch_cache_find(f->directory, want->id);
		if (want->fd < 0)
			want->fd = fetch_cache_part_open(f->directory, want->id);
		want->err = want->fd < 0 ? -ENOENT : 0;
	}
	return true;
}

static void first_fail(struct helpers_fetch *f, int err, const char *text)
{
	f->sent_ns = 0;
	if (!f->first)
		return;
	fetch_cache_part_remove(f->directory, f->first->id);
	want_finish(f, &f->first, err, -1, text);
}

static void answer_take(struct helpers_fetch *f, const struct fetcher_answer *a)
{
	char text[FETCHER_TEXT_MAX];
	int fd;

	text_print(a->text, strnlen(a->text, sizeof(a->text)), text, sizeof(text));
	if (a->ticket == FETCHER_TICKET_UP) {
		f->is_ready = !a->err;
		if (a->err)
			log_warn("debuginfod: flyball-fetcher did not start: %s", text);
		return;
	}
	if (!f->sent_ns || a->ticket != f->ticket)
		return;
	f->restarts = 0;
	/* A server that is left alone was not asked. */
	if (a->err != -EHOSTDOWN)
		tried_add(f, f->first->id, a->err < 0 ? a->err : a->err ? -EIO : 0);
	if (a->err) {
		if (a->err == -ENOENT)
			fetch_cache_negative_add(f->directory, f->first->id);
		first_fail(f, a->err < 0 ? a->err : -EIO, text);
		return;
	}
	f->sent_ns = 0;
	fd = fetch_cache_part_open(f->directory, f->first->id);
	if (fd < 0)
		first_fail(f, fd, "the file in the cache is gone");
	else
		want_finish(f, &f->first, 0, fd, "");
}

/* Answers and the fetcher's end. */
static void answers_drain(struct helpers_fetch *f)
{
	struct fetcher_answer a;
	ssize_t n;

	while (f->socket >= 0) {
		n = recv(f->socket, &a, sizeof(a), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n == (ssize_t)sizeof(a)) {
			answer_take(f, &a);
			continue;
		}
		fetcher_end(f);
		if (f->sent_ns)
			first_fail(f, -EIO, "flyball-fetcher ended while it worked on this");
	}
}

static void deadline_keep(struct helpers_fetch *f, uint64_t now)
{
	if (f->sent_ns && now - f->sent_ns > f->begin.deadline_ms * 1000000ULL + GRACE_NS) {
		fetcher_end(f);
		tried_add(f, f->first->id, -ETIMEDOUT);
		first_fail(f, -ETIMEDOUT, "flyball-fetcher did not keep to its deadline");
	}
	if (f->helper.pid > 0 && !f->is_ready && now - f->spawned_ns > START_NS)
		fetcher_end(f);
}

void helpers_fetch_poll(struct helpers_fetch *f)
{
	uint64_t n;
	ssize_t got = read(f->event, &n, sizeof(n));
	int err;

	(void)got; /* empty is fine */
	known_tell(f);
	answers_drain(f);
	deadline_keep(f, clock_monotonic_ns());
	if (f->sent_ns || !f->first || f->first->is_known)
		return;
	if (tried_find(f, f->first)) {
		wake(f);
		return;
	}
	err = f->helper.pid > 0 ? 0 : fetcher_spawn(f);
	if (!err && !f->is_ready)
		return;
	if (!err)
		err = request_send(f, f->first);
	if (err) {
		first_fail(f, err, strerror(-err));
		wake(f);
	}
}

void helpers_fetch_cost(const struct helpers_fetch *f, uint64_t *ret_user_ns,
			uint64_t *ret_system_ns, uint64_t *ret_anon_bytes)
{
	helper_state(&f->helper, ret_user_ns, ret_system_ns);
	*ret_user_ns += f->ended_user_ns;
	*ret_system_ns += f->ended_system_ns;
	*ret_anon_bytes = helper_anon_bytes(&f->helper);
}

void helpers_fetch_stop(struct helpers_fetch *f)
{
	struct tried *t, *next;

	if (!f)
		return;
	fetcher_end(f);
	while (f->first) {
		if (f->first->is_known && f->first->fd >= 0)
			close(f->first->fd);
		first_fail(f, -ECANCELED, "stopped");
	}
	HASH_ITER (hh, f->tried, t, next) {
		HASH_DEL(f->tried, t);
		mem_free(MEM_HELPERS, t);
	}
	if (f->directory >= 0)
		close(f->directory);
	if (f->epoll >= 0)
		close(f->epoll);
	if (f->event >= 0)
		close(f->event);
	mem_free(MEM_HELPERS, f);
}
