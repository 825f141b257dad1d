/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A build of shapes.c that runs, what it maps, and a judge of its stacks. The includer has cmocka.
 * REPLAY_SHAPES, of the build, names the programs.
 */
#ifndef TEST_REPLAY_SHAPES_RUN_H
#define TEST_REPLAY_SHAPES_RUN_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli_unwind_stack.h"

struct shapes {
	pid_t pid;
	struct cli_picture picture;
	struct cli_judge *judge;
};

/* It says when it has begun: its threads and mappings are what they will be. */
static inline void shapes_start(struct shapes *s, const char *path)
{
	struct why why = {""};
	int pipes[2];
	char byte;

	*s = (struct shapes){0};
	assert_int_equal(pipe(pipes), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (!s->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(pipes[1], 1);
		close(pipes[0]);
		execl(path, path, (char *)NULL);
		_exit(9);
	}
	close(pipes[1]);
	if (read(pipes[0], &byte, 1) != 1)
		fail_msg("%s did not begin", path);
	close(pipes[0]);
	if (cli_picture_open(s->pid, &s->picture, &why) ||
	    cli_judge_new(&s->picture, s->pid, &s->judge, &why))
		fail_msg("%s: %s", path, why.text);
}

static inline void shapes_end(struct shapes *s)
{
	cli_judge_free(s->judge);
	cli_picture_close(&s->picture);
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	assert_int_equal(mem_live_bytes(MEM_BASE) + mem_live_bytes(MEM_ELF), 0);
}

#endif
