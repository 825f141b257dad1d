// SPDX-License-Identifier: Apache-2.0
/*
 * Main's side of debuginfod with the real flyball-fetcher and a server of the test's own, one
 * process for each test, whose manners the test chooses.
 */
#include "helpers/fetch_cache.h"
#include "helpers/helpers_fetch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define DEADLINE_MS 600
#define BYTES_MAX   100000

enum manner { GOOD, NOT_FOUND, HANG, ENDLESS, EMPTY, DROP };

static char cache[64], url[64];
static pid_t server;
static struct helpers_fetch *fetch;
static const uint8_t id[] = {0xab, 0xcd, 0xef, 1};
#define ID "abcdef01"

struct outcome {
	int calls, err;
	char body[64];
};

static void on_done(void *ctx, int err, int fd, const char *text)
{
	struct outcome *o = ctx;
	ssize_t n = fd >= 0 ? pread(fd, o->body, sizeof(o->body) - 1, 0) : 0;

	(void)text;
	o->body[n > 0 ? n : 0] = 0;
	o->calls++;
	o->err = err;
	if (!err) {
		assert_true(fd >= 0);
		assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	}
}

static void say(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) < 0)
		_exit(1);
}

static void serve_one(int fd, enum manner manner)
{
	static const char bytes[4096];
	char request[2048];

	if (recv(fd, request, sizeof(request), 0) <= 0)
		return;
	switch (manner) {
	case GOOD:
		say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody");
		break;
	case NOT_FOUND:
		say(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
		break;
	case EMPTY:
		say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
		break;
	case HANG:
		pause();
		break;
	case ENDLESS:
		say(fd, "HTTP/1.1 200 OK\r\n\r\n");
		while (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
			;
		break;
	case DROP:
		break;
	}
}

static void server_start(enum manner manner)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t bytes = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u/", ntohs(at.sin_port));
	server = fork();
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int peer = accept(fd, NULL, NULL);

			serve_one(peer, manner);
			close(peer);
		}
	}
	close(fd);
}

static void fetch_start(void)
{
	struct helpers_fetch_options options = {.urls = url,
						.cache = cache,
						.directory = HELPERS_DIR,
						.deadline_ms = DEADLINE_MS,
						.bytes_max = BYTES_MAX};
	struct why why = {""};

	if (helpers_fetch_start(&options, &fetch, &why))
		fail_msg("%s", why.text);
}

static void begin(enum manner manner)
{
	if (access(HELPERS_DIR "/flyball-fetcher", X_OK))
		skip();
	server_start(manner);
	fetch_start();
}

static struct outcome ask(void)
{
	struct outcome o = {0};
	uint64_t end = clock_monotonic_ns() + 20000000000ULL;

	assert_int_equal(helpers_fetch_ask(fetch, id, sizeof(id), on_done, &o), 0);
	while (!o.calls && clock_monotonic_ns() < end) {
		struct pollfd p = {.fd = helpers_fetch_fd(fetch), .events = POLLIN};

		poll(&p, 1, 50);
		helpers_fetch_poll(fetch);
	}
	assert_int_equal(o.calls, 1);
	return o;
}

static int setup(void **state)
{
	(void)state;
	snprintf(cache, sizeof(cache), "/tmp/test_fetch.XXXXXX");
	assert_non_null(mkdtemp(cache));
	fetch = NULL;
	server = 0;
	return 0;
}

static bool has_file(const char *kind)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/" ID ".%s", cache, kind);
	return !access(path, F_OK);
}

static int teardown(void **state)
{
	static const char *const kinds[] = {"debug", "none", "part"};

	(void)state;
	helpers_fetch_stop(fetch);
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/" ID ".%s", cache, kinds[i]);
		unlink(path);
	}
	rmdir(cache);
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
	return 0;
}

static void helpers_fetch__a_file__is_kept_once_it_is_good(void **state)
{
	struct outcome o;

	(void)state;
	begin(GOOD);
	o = ask();
	assert_int_equal(o.err, 0);
	assert_string_equal(o.body, "body");
	assert_false(has_file("debug"));
	/* A second file of this build-id does not go to the server again. */
	kill(server, SIGSTOP);
	o = ask();
	assert_int_equal(o.err, 0);
	helpers_fetch_verdict(fetch, id, sizeof(id), true);
	assert_true(has_file("debug"));
	assert_false(has_file("part"));
	helpers_fetch_stop(fetch);
	fetch_start();
	o = ask();
	kill(server, SIGCONT);
	assert_int_equal(o.err, 0);
	assert_string_equal(o.body, "body");
}

static void helpers_fetch__a_wrong_file__is_forgotten_and_not_asked_again(void **state)
{
	struct outcome o;

	(void)state;
	begin(GOOD);
	assert_int_equal(ask().err, 0);
	helpers_fetch_verdict(fetch, id, sizeof(id), false);
	assert_false(has_file("debug"));
	assert_false(has_file("part"));
	assert_true(has_file("none"));
	helpers_fetch_stop(fetch);
	fetch_start();
	o = ask();
	assert_int_equal(o.err, -ENOENT);
}

static void helpers_fetch__not_found__is_remembered(void **state)
{
	(void)state;
	begin(NOT_FOUND);
	assert_int_equal(ask().err, -ENOENT);
	assert_true(has_file("none"));
	assert_false(has_file("part"));
}

static void helpers_fetch__a_server_that_hangs__ends_at_the_deadline(void **state)
{
	uint64_t began = clock_monotonic_ns();
	struct outcome o;

	(void)state;
	begin(HANG);
	o = ask();
	assert_int_equal(o.err, -ETIMEDOUT);
	assert_true(clock_monotonic_ns() - began < 5000000000ULL);
	assert_false(has_file("none"));
	assert_false(has_file("part"));
	/* One try. */
	began = clock_monotonic_ns();
	assert_int_equal(ask().err, -ETIMEDOUT);
	assert_true(clock_monotonic_ns() - began < DEADLINE_MS * 500000ULL);
}

static void helpers_fetch__an_endless_body__ends_at_the_limit(void **state)
{
	(void)state;
	begin(ENDLESS);
	assert_int_equal(ask().err, -EFBIG);
	assert_false(has_file("part"));
}

static void helpers_fetch__an_empty_body__is_a_failure(void **state)
{
	(void)state;
	begin(EMPTY);
	assert_int_equal(ask().err, -EIO);
}

static void helpers_fetch__a_dropped_connection__is_a_failure(void **state)
{
	(void)state;
	begin(DROP);
	assert_int_equal(ask().err, -EIO);
	assert_false(has_file("none"));
}

static void helpers_fetch__stop__waits_for_nothing(void **state)
{
	struct outcome o = {0};
	uint64_t began;

	(void)state;
	begin(HANG);
	assert_int_equal(helpers_fetch_ask(fetch, id, sizeof(id), on_done, &o), 0);
	for (int i = 0; i < 5; i++) {
		helpers_fetch_poll(fetch);
		poll(NULL, 0, 20);
	}
	assert_int_equal(o.calls, 0);
	began = clock_monotonic_ns();
	helpers_fetch_stop(fetch);
	fetch = NULL;
	assert_true(clock_monotonic_ns() - began < DEADLINE_MS * 1000000ULL);
	assert_int_equal(o.calls, 1);
	assert_int_equal(o.err, -ECANCELED);
}

static void helpers_fetch__no_url__is_refused(void **state)
{
	struct helpers_fetch_options options = {
		.urls = "file:///etc ftp://x", .cache = cache, .directory = HELPERS_DIR};
	struct why why = {""};

	(void)state;
	assert_int_equal(helpers_fetch_start(&options, &fetch, &why), -EINVAL);
}

static void fetch_cache__a_directory_others_write_to__is_refused(void **state)
{
	struct why why = {""};
	int fd;

	(void)state;
	chmod(cache, 0777);
	assert_int_equal(fetch_cache_open(cache, 1 << 20, &fd, &why), -EACCES);
}

static void fetch_cache__the_oldest_go_first(void **state)
{
	char path[128], bytes[65536] = {1};
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	struct why why = {""};
	int fd, cached;

	(void)state;
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s.debug", cache, i ? ID : "0ff0");
		fd = open(path, O_WRONLY | O_CREAT, 0600);
		assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
		if (!i)
			futimens(fd, old);
		close(fd);
	}
	assert_int_equal(fetch_cache_open(cache, 100000, &fd, &why), 0);
	assert_int_equal(fetch_cache_find(fd, "0ff0"), -ENOENT);
	cached = fetch_cache_find(fd, ID);
	assert_true(cached >= 0);
	close(cached);
	close(fd);
}

static void fetch_cache__negative__ends_after_its_time(void **state)
{
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	struct why why = {""};
	int fd;

	(void)state;
	assert_int_equal(fetch_cache_open(cache, 1 << 20, &fd, &why), 0);
	assert_false(fetch_cache_is_negative(fd, ID, 3600));
	fetch_cache_negative_add(fd, ID);
	assert_true(fetch_cache_is_negative(fd, ID, 3600));
	assert_int_equal(utimensat(fd, ID ".none", old, 0), 0);
	assert_false(fetch_cache_is_negative(fd, ID, 3600));
	close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(helpers_fetch__a_file__is_kept_once_it_is_good),
		T(helpers_fetch__a_wrong_file__is_forgotten_and_not_asked_again),
		T(helpers_fetch__not_found__is_remembered),
		T(helpers_fetch__a_server_that_hangs__ends_at_the_deadline),
		T(helpers_fetch__an_endless_body__ends_at_the_limit),
		T(helpers_fetch__an_empty_body__is_a_failure),
		T(helpers_fetch__a_dropped_connection__is_a_failure),
		T(helpers_fetch__stop__waits_for_nothing),
		T(helpers_fetch__no_url__is_refused),
		T(fetch_cache__a_directory_others_write_to__is_refused),
		T(fetch_cache__the_oldest_go_first),
		T(fetch_cache__negative__ends_after_its_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
