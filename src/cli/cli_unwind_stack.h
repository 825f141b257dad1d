/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli, inside: one stack walked twice over the same bytes, by our tables and by libdw.
 *
 *	picture   what a process maps: files, held open, with their tables; read while it runs
 *	memory    pages of it, kept as they were first read; after cli_memory_end no more are read
 *	judge     libdw over the picture's files
 */
#ifndef FLYBALL_CLI_UNWIND_STACK_H
#define FLYBALL_CLI_UNWIND_STACK_H

#include <sys/types.h>

#include "unwind/unwind_walk.h"

#define CLI_PICTURE_NAME 128

struct cli_file {
	uint64_t dev, ino, bias;
	int fd;		/* -1: anonymous, or not to be opened */
	uint32_t table; /* its number in the space, or FLY_TABLE_x */
	char name[CLI_PICTURE_NAME];
};

struct cli_mapping {
	uint64_t start, end;
	uint32_t file;
};

struct cli_picture {
	struct unwind_space *space;
	struct cli_file *files;
	struct cli_mapping *mappings; /* executable, by address */
	size_t file_count, files_cap, mapping_count, mappings_cap;
	uint64_t stack_start; /* of the main thread */
};
int cli_picture_open(pid_t pid, struct cli_picture *ret, struct why *why);
void cli_picture_close(struct cli_picture *picture);
/* NULL: in none. */
const struct cli_mapping *cli_picture_find(const struct cli_picture *picture, uint64_t address);

struct cli_memory {
	pid_t pid; /* 0: no more is read */
	struct cli_page {
		uint64_t address;
		uint8_t *data; /* NULL: free */
	} *pages;
	size_t count;
};
int cli_memory_init(struct cli_memory *memory, pid_t pid);
void cli_memory_end(struct cli_memory *memory);
void cli_memory_done(struct cli_memory *memory);
/* A page (4 KiB) that came from elsewhere. What is there already stays. */
void cli_memory_keep(struct cli_memory *memory, uint64_t address, const uint8_t *bytes);
/* unwind_memory's read. */
int cli_memory_read(void *memory, uint64_t address, void *out, size_t bytes);

/* Stops the thread (other than the caller's own), tells its registers, keeps the part of its stack
 * that both walks will want, walks by our tables, and lets it go: it stands still for well below a
 * millisecond. */
int cli_thread_walk(pid_t tid, const struct cli_picture *picture, struct cli_memory *memory,
		    struct unwind_thread *ret_thread, struct unwind_stack *ret, struct why *why);

struct cli_judge;
/* Borrows the picture. -EOPNOTSUPP in a build without libdw. */
int cli_judge_new(const struct cli_picture *picture, pid_t pid, struct cli_judge **ret,
		  struct why *why);
void cli_judge_free(struct cli_judge *judge);
/* What libdw found. Frames from the first that lies in no executable mapping are left out. */
struct cli_judgement {
	struct unwind_stack stack; /* is_whole: libdw says that the stack ends there */
	/* Frames found by call frame information. In code without any libdw guesses on by frame
	 * pointer, and leaves out the caller of a function that has made no frame: no judgement. */
	uint32_t judged;
};
int cli_judge_walk(struct cli_judge *judge, struct cli_memory *memory,
		   const struct unwind_thread *thread, struct cli_judgement *ret, struct why *why);
/* The function, for reading; NULL: no symbol. */
const char *cli_judge_name(struct cli_judge *judge, uint64_t address);

enum cli_verdict {
	CLI_VERDICT_SAME,
	CLI_VERDICT_WRONG, /* a frame differs from libdw's at its depth, and libdw goes on */
	CLI_VERDICT_SHORT, /* libdw finds callers of our last frame */
};
/* ret_depth: the first frame in question. */
enum cli_verdict cli_stack_compare(const struct unwind_stack *ours,
				   const struct cli_judgement *libdw, uint32_t *ret_depth);

int cli_unwind_stack(const char *pid, bool is_json);

/* unwind_source.read of a file; ctx is an int *, its descriptor. */
int cli_unwind_read(void *ctx, uint64_t offset, void *out, size_t bytes);

#endif
