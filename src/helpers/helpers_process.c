// SPDX-License-Identifier: Apache-2.0
/* The helper processes: started by vfork and exec (posix_spawn), with nothing but their two sockets
 * and an empty environment; killed without being waited for; reaped when they let go. */
#include "helpers_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef FLYBALL_LIBEXECDIR
#define FLYBALL_LIBEXECDIR "/usr/libexec/flyball"
#endif

#define STUCK_AFTER_NS (100 * 1000000ULL) /* a killed process that is still there */
#define BACKOFF_NS     (100 * 1000000ULL)
#define FAILURES_MAX   6 /* doublings of the back-off */
#define SOCKET_BYTES   212992

static const char *const names[HELPER_KINDS] = {"flyball-opener", "flyball-reader"};

bool helper_is_running(const struct helpers *h, enum helper_kind kind)
{
	return h->helper[kind].pid > 0;
}

static int pair_open(int ours[2], bool is_ours_blocking)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -errno;
	for (int i = 0; i < 2; i++) {
		int bytes = SOCKET_BYTES;

		setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
		/* Clear of 0 to 9: the spawn moves them to 3 and 4. */
		ours[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);
		close(fds[i]);
		if (ours[i] < 0)
			return -errno;
	}
	if (!is_ours_blocking)
		fcntl(ours[0], F_SETFL, O_RDWR | O_NONBLOCK);
	return 0;
}

int helpers_open_pairs(struct helpers *h, struct why *why)
{
	int requests[2] = {-1, -1}, answers[2] = {-1, -1}, jobs[2] = {-1, -1}, err;

	err = pair_open(requests, false);
	if (!err)
		err = pair_open(answers, false);
	if (!err)
		err = pair_open(jobs, true);
	h->requests = requests[0];
	h->requests_end = requests[1];
	h->answers = answers[0];
	h->answers_end = answers[1];
	h->jobs = jobs[0];
	h->jobs_end = jobs[1];
	return err ? why_set(why, err, "cannot make sockets: %s", strerror(-err)) : 0;
}

void helpers_close_pairs(struct helpers *h)
{
	int fds[] = {h->requests, h->requests_end, h->answers, h->answers_end,
		     h->jobs,	  h->jobs_end,	   h->epoll,   h->event};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

static bool directory_has_both(const char *directory)
{
	char path[640];

	for (int i = 0; i < HELPER_KINDS; i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		if (access(path, X_OK))
			return false;
	}
	return true;
}

void helpers_directory(const char *directory, char *out, size_t out_size)
{
	ssize_t n;
	char *slash;

	if (directory) {
		snprintf(out, out_size, "%s", directory);
		return;
	}
	n = readlink("/proc/self/exe", out, out_size - 1);
	out[n > 0 ? n : 0] = 0;
	slash = strrchr(out, '/');
	if (slash)
		*slash = 0;
	if (!directory_has_both(out))
		snprintf(out, out_size, "%s", FLYBALL_LIBEXECDIR);
}

int helpers_find_directory(struct helpers *h, const char *directory, struct why *why)
{
	if (!directory && access("/proc/self", F_OK))
		return why_set(why, -ENOENT, "/proc is not mounted: mount it");
	helpers_directory(directory, h->directory, sizeof(h->directory));
	if (directory_has_both(h->directory))
		return 0;
	return why_set(why, -ENOENT, "flyball-opener and flyball-reader are not in %s",
		       h->directory);
}

/* The only descriptors that cross: 0 to 2 on /dev/null (2 stays in debug), 3 and 4 the sockets. */
static int spawn_actions(posix_spawn_file_actions_t *actions, int first, int second)
{
	int err = posix_spawn_file_actions_adddup2(actions, first, 3);

	if (!err && second >= 0)
		err = posix_spawn_file_actions_adddup2(actions, second, 4);
	if (!err)
		err = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
	if (!err)
		err = posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0);
	if (!err && log_get_level() < LOG_DEBUG)
		err = posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0);
	if (!err)
		err = posix_spawn_file_actions_addclosefrom_np(actions, second >= 0 ? 5 : 4);
	return err;
}

int helper_exec(const char *program, int first, int second, char **envp, int *ret_pid)
{
	char path[640], parent[16], *argv[] = {path, parent, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int err;

	snprintf(path, sizeof(path), "%s", program);
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	sigemptyset(&none);
	sigfillset(&all);
	err = posix_spawn_file_actions_init(&actions);
	if (err)
		return -err;
	err = posix_spawnattr_init(&attr);
	if (err) {
		posix_spawn_file_actions_destroy(&actions);
		return -err;
	}
	/* A session of its own: Ctrl-C is not for it. */
	posix_spawnattr_setflags(&attr, (short)(POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
						POSIX_SPAWN_SETSIGDEF));
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	err = spawn_actions(&actions, first, second);
	if (!err)
		err = posix_spawn(ret_pid, path, &actions, &attr, argv, envp);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return -err;
}

static int spawn(struct helpers *h, enum helper_kind kind, int *ret_pid)
{
	int first = kind == HELPER_OPENER ? h->requests_end : h->jobs_end;
	int second = kind == HELPER_OPENER ? h->jobs : h->answers_end;
	char path[640], *envp[] = {NULL};

	snprintf(path, sizeof(path), "%s/%s", h->directory, names[kind]);
	return helper_exec(path, first, second, envp, ret_pid);
}

int helper_spawn(struct helpers *h, enum helper_kind kind, struct why *why)
{
	struct helper *helper = &h->helper[kind];
	struct epoll_event event = {.events = EPOLLIN};
	int pid, err = spawn(h, kind, &pid);

	if (err)
		return why_set(why, err, "cannot start %s/%s: %s", h->directory, names[kind],
			       strerror(-err));
	helper->pid = pid;
	helper->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	helper->is_ready = false;
	helper->has_worked = false;
	helper->spawned_ns = clock_monotonic_ns();
	helper->progress_ns = helper->spawned_ns;
	helper->has_cpu_mark = false;
	if (helper->pidfd >= 0)
		epoll_ctl(h->epoll, EPOLL_CTL_ADD, helper->pidfd, &event);
	return 0;
}

static uint64_t timeval_ns(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000000ULL + (uint64_t)t->tv_usec * 1000ULL;
}

/* True when pid is gone, by us or (SIGCHLD ignored) by itself. */
static bool reap(struct helpers *h, int pid, int *ret_status)
{
	struct rusage usage;
	int got;

	*ret_status = 0;
	got = wait4(pid, ret_status, WNOHANG, &usage);
	if (got == 0 || (got < 0 && errno != ECHILD))
		return false;
	if (got == pid) {
		h->ended_user_ns += timeval_ns(&usage.ru_utime);
		h->ended_system_ns += timeval_ns(&usage.ru_stime);
	}
	return true;
}

static void forget(struct helper *helper)
{
	if (helper->pidfd >= 0)
		close(helper->pidfd);
	helper->pid = -1;
	helper->pidfd = -1;
}

/* Ended without having done a thing: the next start waits longer. */
static void back_off(struct helper *helper)
{
	uint64_t now = clock_monotonic_ns();

	if (helper->has_worked) {
		helper->failures = 0;
		helper->next_spawn_ns = now;
		return;
	}
	helper->next_spawn_ns = now + (BACKOFF_NS << helper->failures);
	if (helper->failures < FAILURES_MAX)
		helper->failures++;
}

bool helper_has_ended(struct helpers *h, enum helper_kind kind)
{
	struct helper *helper = &h->helper[kind];
	int status;

	if (helper->pid <= 0 || !reap(h, helper->pid, &status))
		return false;
	helper->ended_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	forget(helper);
	back_off(helper);
	return true;
}

void helper_kill(struct helpers *h, enum helper_kind kind)
{
	struct helper *helper = &h->helper[kind];
	struct epoll_event event = {0};

	if (helper->pid <= 0)
		return;
	/* Not reaped yet, so the number is still its own. */
	kill(helper->pid, SIGKILL);
	if (helper->pidfd >= 0)
		epoll_ctl(h->epoll, EPOLL_CTL_DEL, helper->pidfd, &event);
	if (h->dying_count < HELPERS_DYING_MAX)
		h->dying[h->dying_count++] =
			(struct dying){helper->pid, helper->pidfd, clock_monotonic_ns()};
	helper->pid = -1;
	helper->pidfd = -1;
	back_off(helper);
}

void helper_reap_dying(struct helpers *h)
{
	int status;

	for (size_t i = 0; i < h->dying_count;) {
		if (!reap(h, h->dying[i].pid, &status)) {
			i++;
			continue;
		}
		if (h->dying[i].pidfd >= 0)
			close(h->dying[i].pidfd);
		h->dying[i] = h->dying[--h->dying_count];
	}
}

unsigned int helper_stuck_count(const struct helpers *h)
{
	uint64_t now = clock_monotonic_ns();
	unsigned int stuck = 0;

	for (size_t i = 0; i < h->dying_count; i++) {
		if (now - h->dying[i].killed_ns >= STUCK_AFTER_NS)
			stuck++;
	}
	return stuck;
}

void helper_revive(struct helpers *h, uint64_t now)
{
	for (int kind = 0; kind < HELPER_KINDS; kind++) {
		struct helper *helper = &h->helper[kind];
		struct why why;

		if (helper->pid > 0 || now < helper->next_spawn_ns || h->is_stopping)
			continue;
		helper_reap_dying(h);
		if (h->dying_count >= HELPERS_STUCK_MAX)
			continue;
		if (helper_spawn(h, (enum helper_kind)kind, &why)) {
			helper->has_worked = false;
			back_off(helper);
			continue;
		}
		h->restarts[kind]++;
	}
}

uint64_t helper_cpu_ns(const struct helper *helper)
{
	struct timespec t;
	clockid_t clock;

	if (helper->pid <= 0 || clock_getcpuclockid(helper->pid, &clock) ||
	    clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static bool proc_read(int pid, const char *file, char *out, size_t out_size)
{
	char path[48];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, out, out_size - 1);
	close(fd);
	out[n > 0 ? n : 0] = 0;
	return n > 0;
}

char helper_state(const struct helper *helper, uint64_t *ret_user_ns, uint64_t *ret_system_ns)
{
	uint64_t user, system, total = helper_cpu_ns(helper);
	char text[1024], *p;
	char state;

	*ret_user_ns = 0;
	*ret_system_ns = total;
	if (helper->pid <= 0 || !proc_read(helper->pid, "stat", text, sizeof(text)))
		return 0;
	p = strrchr(text, ')');
	if (!p || !p[1])
		return 0;
	state = p[2];
	for (int field = 2; p && field < 14; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return state;
	user = strtoull(p, &p, 10);
	system = strtoull(p, &p, 10);
	/* Those two tick in hundredths; the clock's sum is exact, so it is shared out by them. */
	if (user + system)
		*ret_user_ns = (uint64_t)((double)total * (double)user / (double)(user + system));
	*ret_system_ns = total - *ret_user_ns;
	return state;
}

uint64_t helper_anon_bytes(const struct helper *helper)
{
	char text[4096], *p;

	if (helper->pid <= 0 || !proc_read(helper->pid, "status", text, sizeof(text)))
		return 0;
	p = strstr(text, "RssAnon:");
	return p ? strtoull(p + 8, NULL, 10) * 1024 : 0;
}
