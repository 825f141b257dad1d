// SPDX-License-Identifier: Apache-2.0
/*
 * flyball-fetcher PARENT: asks debuginfod servers (their web API: URL/buildid/ID/debuginfo) for
 * debug files and writes what comes to the descriptor of the request. No capabilities, nothing but
 * sockets and files that everybody may read (resolver, certificates). One request at a time.
 */
#include "fetcher_wire.h"
#include "sandbox.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SERVERS_MAX	  16
#define CONNECT_MS	  3000
#define STALLED_SEC	  5 /* with less than STALLED_BYTES a second */
#define STALLED_BYTES	  1024
#define REDIRECTS_MAX	  4
#define FAILURES_MAX	  3
#define PAUSE_NS	  60000000000ULL
#define PAUSE_DOUBLED_MAX 6 /* about an hour */
#define DATA_MAX	  (256UL << 20)

struct server {
	const char *url;
	unsigned int failures;
	uint64_t resume_ns;
};

struct fetcher {
	struct fetcher_begin begin;
	struct server servers[SERVERS_MAX];
	size_t server_count;
	CURL *curl;
	/* The download under way: */
	int fd;
	uint64_t bytes;
	int write_err;
	char curl_text[CURL_ERROR_SIZE];
};

static int confine(int parent, struct why *why)
{
	/* Libraries probe for much: what is not here fails, and does not end the process. */
	static const struct sandbox_rule rules[] = {
		{SCMP_SYS(openat), 2, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY},
		{SCMP_SYS(socket), 0, ~0ULL, AF_INET},
		{SCMP_SYS(socket), 0, ~0ULL, AF_INET6},
		{SCMP_SYS(socket), 0, ~0ULL, AF_NETLINK},
		{SCMP_SYS(clone), 0, CLONE_THREAD | CLONE_VM, CLONE_THREAD | CLONE_VM},
	};
	static const int calls[] = {
		SCMP_SYS(read),		 SCMP_SYS(pread64),
		SCMP_SYS(readv),	 SCMP_SYS(write),
		SCMP_SYS(writev),	 SCMP_SYS(close),
		SCMP_SYS(fstat),	 SCMP_SYS(newfstatat),
		SCMP_SYS(stat),		 SCMP_SYS(lseek),
		SCMP_SYS(access),	 SCMP_SYS(readlink),
		SCMP_SYS(getdents64),	 SCMP_SYS(fcntl),
		SCMP_SYS(ioctl),	 SCMP_SYS(ftruncate),
		SCMP_SYS(connect),	 SCMP_SYS(bind),
		SCMP_SYS(getsockname),	 SCMP_SYS(getpeername),
		SCMP_SYS(getsockopt),	 SCMP_SYS(setsockopt),
		SCMP_SYS(sendto),	 SCMP_SYS(sendmsg),
		SCMP_SYS(sendmmsg),	 SCMP_SYS(recvfrom),
		SCMP_SYS(recvmsg),	 SCMP_SYS(shutdown),
		SCMP_SYS(socketpair),	 SCMP_SYS(pipe2),
		SCMP_SYS(eventfd2),	 SCMP_SYS(poll),
		SCMP_SYS(ppoll),	 SCMP_SYS(select),
		SCMP_SYS(pselect6),	 SCMP_SYS(epoll_create1),
		SCMP_SYS(epoll_ctl),	 SCMP_SYS(epoll_wait),
		SCMP_SYS(brk),		 SCMP_SYS(mmap),
		SCMP_SYS(mprotect),	 SCMP_SYS(mremap),
		SCMP_SYS(munmap),	 SCMP_SYS(madvise),
		SCMP_SYS(futex),	 SCMP_SYS(set_robust_list),
		SCMP_SYS(rseq),		 SCMP_SYS(exit),
		SCMP_SYS(exit_group),	 SCMP_SYS(getrandom),
		SCMP_SYS(getpid),	 SCMP_SYS(gettid),
		SCMP_SYS(getuid),	 SCMP_SYS(geteuid),
		SCMP_SYS(getgid),	 SCMP_SYS(getegid),
		SCMP_SYS(uname),	 SCMP_SYS(sysinfo),
		SCMP_SYS(clock_gettime), SCMP_SYS(clock_nanosleep),
		SCMP_SYS(gettimeofday),	 SCMP_SYS(time),
		SCMP_SYS(rt_sigaction),	 SCMP_SYS(rt_sigprocmask),
		SCMP_SYS(rt_sigreturn),	 SCMP_SYS(restart_syscall),
		SCMP_SYS(prlimit64),	 SCMP_SYS(sched_getaffinity),
	};
	struct sandbox_rule all[ARRAY_SIZE(rules) + ARRAY_SIZE(calls)];
	struct rlimit data = {DATA_MAX, DATA_MAX};
	int err = sandbox_drop(NULL, 0, why);

	memcpy(all, rules, sizeof(rules));
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		all[ARRAY_SIZE(rules) + i] = (struct sandbox_rule){calls[i], -1, 0, 0};
	if (!sandbox_is_sanitized())
		setrlimit(RLIMIT_DATA, &data);
	if (!err)
		err = sandbox_follow_parent(parent, why);
	return err ? err : sandbox_filter_soft(all, ARRAY_SIZE(all), why);
}

static size_t take(char *data, size_t size, size_t count, void *ctx)
{
	struct fetcher *f = ctx;
	size_t bytes = size * count, at = 0;

	if (bytes > f->begin.bytes_max - f->bytes) {
		f->write_err = -EFBIG;
		return 0;
	}
	while (at < bytes) {
		ssize_t n = write(f->fd, data + at, bytes - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			f->write_err = n ? -errno : -EIO;
			return 0;
		}
		at += (size_t)n;
	}
	f->bytes += bytes;
	return bytes;
}

static int setup(struct fetcher *f)
{
	CURL *c;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	c = f->curl = curl_easy_init();
	if (!c)
		return -ENOMEM;
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
	curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALLED_SEC);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)STALLED_BYTES);
	curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)f->begin.bytes_max);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "flyball/" FLYBALL_VERSION);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->curl_text);
	return 0;
}

/* 0, -ENOENT where the server says that it has none, else what failed, told in why. */
static int download(struct fetcher *f, const struct server *server, const char *id,
		    uint64_t deadline_ns, struct why *why)
{
	char url[FETCHER_URLS_MAX + FETCHER_ID_MAX + 32];
	uint64_t now = clock_monotonic_ns();
	size_t n = strlen(server->url);
	CURLcode code;
	long status = 0;

	if (now >= deadline_ns)
		return why_set(why, -ETIMEDOUT, "the deadline is over");
	if (lseek(f->fd, 0, SEEK_SET) || ftruncate(f->fd, 0))
		return why_set(why, -errno, "the file in the cache: %s", strerror(errno));
	while (n && server->url[n - 1] == '/')
		n--;
	snprintf(url, sizeof(url), "%.*s/buildid/%s/debuginfo", (int)n, server->url, id);
	f->bytes = 0;
	f->write_err = 0;
	f->curl_text[0] = 0;
	curl_easy_setopt(f->curl, CURLOPT_URL, url);
	curl_easy_setopt(f->curl, CURLOPT_TIMEOUT_MS, (long)((deadline_ns - now) / 1000000 + 1));
	code = curl_easy_perform(f->curl);
	curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_HTTP_RETURNED_ERROR && (status == 404 || status == 410))
		return why_set(why, -ENOENT, "no server has it");
	if (f->write_err == -EFBIG || code == CURLE_FILESIZE_EXCEEDED)
		return why_set(why, -EFBIG, "it is larger than %llu bytes",
			       (unsigned long long)f->begin.bytes_max);
	if (f->write_err)
		return why_set(why, f->write_err, "the file in the cache: %s",
			       strerror(-f->write_err));
	if (code)
		return why_set(why, code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EIO, "%s",
			       f->curl_text[0] ? f->curl_text : curl_easy_strerror(code));
	if (!f->bytes)
		return why_set(why, -EIO, "the answer was empty");
	return 0;
}

/* Failures of the server, not of what it was asked for. */
static void server_judge(struct server *server, int err)
{
	unsigned int doubled;

	if (!err || err == -ENOENT || err == -EFBIG) {
		server->failures = 0;
		return;
	}
	if (++server->failures < FAILURES_MAX)
		return;
	doubled = server->failures - FAILURES_MAX;
	server->resume_ns =
		clock_monotonic_ns() +
		(PAUSE_NS << (doubled < PAUSE_DOUBLED_MAX ? doubled : PAUSE_DOUBLED_MAX));
}

/* -ENOENT only when every server said so. */
static int fetch(struct fetcher *f, const char *id, struct why *why)
{
	uint64_t deadline = clock_monotonic_ns() + f->begin.deadline_ms * 1000000ULL;
	int ret = -ENOENT;

	why_set(why, -ENOENT, "no server has it");
	for (size_t i = 0; i < f->server_count; i++) {
		struct server *server = &f->servers[i];
		struct why one = {""};
		int err;

		if (clock_monotonic_ns() < server->resume_ns) {
			ret = why_set(why, -EHOSTDOWN, "a server is left alone after failures");
			continue;
		}
		err = download(f, server, id, deadline, &one);
		server_judge(server, err);
		if (!err)
			return 0;
		if (err != -ENOENT) {
			ret = err;
			*why = one;
		}
	}
	return ret;
}

static void answer(uint64_t ticket, int err, const char *text)
{
	struct fetcher_answer a = {.ticket = ticket, .err = err};

	text_print(text, strlen(text), a.text, sizeof(a.text));
	send(FETCHER_SOCKET, &a, sizeof(a), MSG_NOSIGNAL);
}

/* False at the end. */
static bool receive(void *out, size_t bytes, int *ret_fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = {out, bytes};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	ssize_t n;

	*ret_fd = -1;
	do {
		n = recvmsg(FETCHER_SOCKET, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)bytes)
		return false;
	c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return true;
}

static int begin(struct fetcher *f, struct why *why)
{
	char *save = NULL;
	int fd;

	if (!receive(&f->begin, sizeof(f->begin), &fd))
		return why_set(why, -EIO, "nothing to begin with");
	f->begin.urls[sizeof(f->begin.urls) - 1] = 0;
	for (char *url = strtok_r(f->begin.urls, " ", &save); url && f->server_count < SERVERS_MAX;
	     url = strtok_r(NULL, " ", &save))
		f->servers[f->server_count++].url = url;
	return setup(f) ? why_set(why, -ENOMEM, "curl cannot be set up") : 0;
}

int main(int argc, char **argv)
{
	static struct fetcher fetcher;
	struct fetcher_request request;
	struct why why = {""};
	uint64_t parent;
	int err;

	if (argc != 2 || text_parse_u64(argv[1], 1, INT32_MAX, &parent))
		return 2;
	err = sandbox_start(FETCHER_SOCKET, (int)parent, &why);
	if (!err)
		err = begin(&fetcher, &why);
	if (!err)
		err = confine((int)parent, &why);
	answer(FETCHER_TICKET_UP, err, why.text);
	if (err)
		return 1;
	while (receive(&request, sizeof(request), &fetcher.fd)) {
		request.build_id[sizeof(request.build_id) - 1] = 0;
		why.text[0] = 0;
		err = fetcher.fd < 0 ? why_set(&why, -EBADF, "no descriptor came")
				     : fetch(&fetcher, request.build_id, &why);
		if (fetcher.fd >= 0)
			close(fetcher.fd);
		answer(request.ticket, err, why.text);
		malloc_trim(0);
	}
	return 0;
}
