/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store, inside: room given back by a database that was set aside, while its blocks are brought
 * over: the pages that hold nothing but the bytes of a block that is elsewhere become holes in the
 * file. SQLite cannot do that to a damaged database. A page is only taken when its content is, byte
 * for byte, what was brought over, so whatever the damage made of the pointers, no other block is
 * touched.
 */
#ifndef FLYBALL_STORE_HOLES_H
#define FLYBALL_STORE_HOLES_H

#include "base/base.h"

/* A row: so many bytes in its leaf, and the rest in a chain of pages. */
struct store_chain {
	uint64_t id;
	uint32_t first; /* page; 0: all of it is in the leaf */
	uint32_t leaf;	/* index */
	uint32_t at;	/* in the leaf */
};

struct store_leaf {
	uint32_t page, rows, done; /* all done: it can go as well */
};

struct store_holes {
	int fd;
	uint32_t file_pages;
	struct store_chain *chains; /* by id */
	size_t count, cap;
	struct store_leaf *leaves;
	size_t leaf_count, leaf_cap;
	uint32_t *pages; /* to become holes */
	size_t page_count, page_cap;
	struct buf record;
};

/* Looks through the file. On an error nothing can be given back; done is due all the same. */
int store_holes_init(struct store_holes *holes, int directory_fd, const char *name);
void store_holes_done(struct store_holes *holes);
/* The row (id, terms, bytes) of the table data is no longer needed there. */
void store_holes_add(struct store_holes *holes, uint64_t id, const void *terms, size_t terms_len,
		     const void *bytes, size_t len);
/* Makes the holes. False: there was none to make. */
bool store_holes_make(struct store_holes *holes);

#endif
