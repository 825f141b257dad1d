// SPDX-License-Identifier: Apache-2.0
/*
 * command: starts what `record -- COMMAND` follows. The child exists, marked for the kernel, before
 * it executes anything, so that not one instruction of the program is missed. It keeps our stdin,
 * stdout and stderr, and gets back the signal state that we were started with.
 */
#include "record_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned int agent_closed_descriptors;

static void child_run(char *const *argv, int go_fd, int error_fd)
{
	char go;
	int err;
	sigset_t none;

	if (read(go_fd, &go, 1) != 1)
		_exit(AGENT_EXIT_FAILED); /* the recording did not start */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (agent_closed_descriptors & 1U << fd)
			close(fd);
	}
	execvp(argv[0], argv);
	err = errno;
	if (write(error_fd, &err, sizeof(err)) < 0) {
		/* the parent sees the exit status */
	}
	_exit(err == ENOENT ? AGENT_EXIT_NOT_FOUND : AGENT_EXIT_NOT_EXECUTABLE);
}

int command_prepare(char *const *argv, struct command *ret, struct why *why)
{
	int go[2], error[2];
	pid_t pid;

	if (pipe2(go, O_CLOEXEC))
		return why_set(why, -errno, "no pipe for the command: %s", strerror(errno));
	if (pipe2(error, O_CLOEXEC)) {
		int err = -errno;

		close(go[0]);
		close(go[1]);
		return why_set(why, err, "no pipe for the command: %s", strerror(-err));
	}
	pid = fork();
	if (!pid) {
		close(go[1]);
		close(error[0]);
		child_run(argv, go[0], error[1]);
	}
	close(go[0]);
	close(error[1]);
	ret->pid = pid;
	ret->go_fd = go[1];
	ret->error_fd = error[0];
	ret->pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (ret->pidfd < 0) {
		int err = -errno;

		command_cancel(ret);
		return why_set(why, err, "cannot start a process for %s: %s", argv[0],
			       strerror(-err));
	}
	return 0;
}

int command_go(struct command *command, char *const *argv, struct why *why)
{
	int err = 0;
	ssize_t n;

	if (write(command->go_fd, "g", 1) != 1)
		return why_set(why, -errno, "the child for %s is gone", argv[0]);
	do {
		n = read(command->error_fd, &err, sizeof(err));
	} while (n < 0 && errno == EINTR);
	close(command->go_fd);
	close(command->error_fd);
	command->go_fd = command->error_fd = -1;
	if (n != (ssize_t)sizeof(err))
		return 0; /* closed by a successful execve */
	waitpid(command->pid, NULL, 0);
	command->pid = -1;
	return why_set(why, -err, "cannot run %s: %s", argv[0],
		       err == ENOENT ? "no such program" : strerror(err));
}

void command_cancel(struct command *command)
{
	if (command->go_fd >= 0)
		close(command->go_fd);
	if (command->error_fd >= 0)
		close(command->error_fd);
	if (command->pidfd >= 0)
		close(command->pidfd);
	if (command->pid > 0 && command->go_fd >= 0)
		waitpid(command->pid, NULL, 0); /* it ends by itself: its pipe was closed */
	command->go_fd = command->error_fd = command->pidfd = -1;
	command->pid = -1;
}

int command_exit_status(int wait_status)
{
	if (WIFEXITED(wait_status))
		return WEXITSTATUS(wait_status);
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : AGENT_EXIT_FAILED;
}
