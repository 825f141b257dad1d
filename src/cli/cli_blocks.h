/* SPDX-License-Identifier: Apache-2.0 */
/* Where profiles are read from: files that record wrote, directories of them, a store. */
#ifndef FLYBALL_CLI_BLOCKS_H
#define FLYBALL_CLI_BLOCKS_H

#include "base/base.h"

struct cli_block {
	const char *name;  /* of the file, or of the block in its store */
	const void *bytes; /* until the next call */
	size_t len;
};
struct cli_blocks;

/* Files; of a directory those that end in .otlp, by name. paths are borrowed. */
int cli_blocks_open(char *const *paths, size_t count, struct cli_blocks **ret, struct why *why);
/* The blocks of a store that overlap [since, until); until 0: no end. */
int cli_blocks_open_store(const char *directory, uint64_t since_ns, uint64_t until_ns,
			  struct cli_blocks **ret, struct why *why);
/* 1: ret is filled; 0: no more. -EBADMSG: of a store this block is damaged, and the next call goes
 * on after it. Any other error ends it. */
int cli_blocks_next(struct cli_blocks *blocks, struct cli_block *ret, struct why *why);
void cli_blocks_close(struct cli_blocks *blocks);

#endif
