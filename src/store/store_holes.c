// SPDX-License-Identifier: Apache-2.0
/* store_holes: see store_holes.h. Formats are those of "Database File Format" (sqlite.org), 1.6
 * B-tree pages and 2.1 Record format: a row that does not fit its leaf goes on in a chain of pages,
 * each the number of the next and bytes. */
#include "store_holes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store_internal.h"

#define CHAINS_MAX   (1U << 22)
#define LEAF	     0x0d
#define LEAF_HEADER  8
#define LOCAL_MAX    (STORE_PAGE - 35)
#define LOCAL_MIN    ((STORE_PAGE - 12) * 32 / 255 - 23)
#define PAGE_CONTENT (STORE_PAGE - 4)

static uint32_t get_u32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Returns how many bytes it has; 0: it does not end before the page does. */
static size_t get_varint(const unsigned char *p, size_t left, uint64_t *ret)
{
	uint64_t v = 0;

	for (size_t i = 0; i < left && i < 9; i++) {
		if (i == 8) {
			*ret = v << 8 | p[i];
			return 9;
		}
		v = v << 7 | (p[i] & 0x7f);
		if (!(p[i] & 0x80)) {
			*ret = v;
			return i + 1;
		}
	}
	return 0;
}

static void put_varint(struct buf *out, uint64_t v)
{
	unsigned char bytes[10];
	size_t n = 0;

	do
		bytes[n++] = (unsigned char)(v & 0x7f);
	while (v >>= 7);
	while (n-- > 0)
		buf_add_char(out, (char)(bytes[n] | (n ? 0x80 : 0)));
}

/* How much of a row lies in its leaf. */
static uint64_t local_bytes(uint64_t payload)
{
	uint64_t k = LOCAL_MIN + (payload - LOCAL_MIN) % PAGE_CONTENT;

	return payload <= LOCAL_MAX ? payload : k <= LOCAL_MAX ? k : LOCAL_MIN;
}

static int add_chain(struct store_holes *h, const struct store_chain *chain)
{
	void *chains = h->chains;
	int err;

	err = mem_grow(MEM_STORE, &chains, &h->cap, h->count + 1, CHAINS_MAX, sizeof(*h->chains));
	h->chains = chains;
	if (!err)
		h->chains[h->count++] = *chain;
	return err;
}

static int add_leaf(struct store_holes *h, uint32_t page, uint32_t rows)
{
	void *leaves = h->leaves;
	int err = mem_grow(MEM_STORE, &leaves, &h->leaf_cap, h->leaf_count + 1, CHAINS_MAX,
			   sizeof(*h->leaves));

	h->leaves = leaves;
	if (!err)
		h->leaves[h->leaf_count++] = (struct store_leaf){page, rows, 0};
	return err;
}

/* Any bytes: what looks like a row is noted, and judged later. */
static int look_at_leaf(struct store_holes *h, const unsigned char *page, uint32_t number)
{
	uint32_t rows = (uint32_t)page[3] << 8 | page[4];
	int err = add_leaf(h, number, rows);

	for (size_t i = 0; !err && i < rows && LEAF_HEADER + 2 * i + 2 <= STORE_PAGE; i++) {
		const unsigned char *pointer = page + LEAF_HEADER + 2 * i;
		size_t cell = (size_t)pointer[0] << 8 | pointer[1], n, m, end;
		struct store_chain chain = {.leaf = (uint32_t)h->leaf_count - 1};
		uint64_t payload;

		if (cell >= STORE_PAGE)
			continue;
		n = get_varint(page + cell, STORE_PAGE - cell, &payload);
		m = n ? get_varint(page + cell + n, STORE_PAGE - cell - n, &chain.id) : 0;
		if (!m || payload > STORE_PACKED_MAX + (1U << 20))
			continue;
		chain.at = (uint32_t)(cell + n + m);
		end = chain.at + local_bytes(payload);
		if (payload > LOCAL_MAX && end + 4 <= STORE_PAGE)
			chain.first = get_u32(page + end);
		if (end <= STORE_PAGE)
			err = add_chain(h, &chain);
	}
	return err;
}

static int compare_chains(const void *a, const void *b)
{
	const struct store_chain *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

int store_holes_init(struct store_holes *h, int directory_fd, const char *name)
{
	unsigned char page[STORE_PAGE];
	struct stat st;
	int err = 0;

	memset(h, 0, sizeof(*h));
	buf_init(&h->record, MEM_STORE, STORE_PACKED_MAX + (1U << 20));
	h->fd = openat(directory_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (h->fd < 0 || fstat(h->fd, &st))
		return -errno;
	if (st.st_size / STORE_PAGE > UINT32_MAX)
		return -ERANGE;
	h->file_pages = (uint32_t)(st.st_size / STORE_PAGE);
	for (uint32_t i = 1; !err && i < h->file_pages; i++) {
		if (pread(h->fd, page, STORE_PAGE, (off_t)i * STORE_PAGE) == STORE_PAGE &&
		    page[0] == LEAF)
			err = look_at_leaf(h, page, i + 1);
	}
	if (h->count)
		qsort(h->chains, h->count, sizeof(*h->chains), compare_chains);
	return err;
}

void store_holes_done(struct store_holes *h)
{
	if (h->fd >= 0)
		close(h->fd);
	mem_free(MEM_STORE, h->chains);
	mem_free(MEM_STORE, h->leaves);
	mem_free(MEM_STORE, h->pages);
	buf_done(&h->record);
}

/* The row as SQLite writes it: the id itself is NULL in it. */
static void make_record(struct buf *out, const void *terms, size_t terms_len, const void *bytes,
			size_t len)
{
	struct buf types;

	buf_init(&types, MEM_STORE, 64);
	buf_add_char(&types, 0);
	put_varint(&types, 12 + 2 * (uint64_t)terms_len);
	put_varint(&types, 12 + 2 * (uint64_t)len);
	buf_reset(out);
	put_varint(out, types.len + 1); /* with itself, which is below 128 */
	buf_add(out, types.data, types.len);
	buf_add(out, terms, terms_len);
	buf_add(out, bytes, len);
	if (types.err)
		out->err = types.err;
	buf_done(&types);
}

static bool add_page(struct store_holes *h, uint32_t page)
{
	void *pages = h->pages;
	int err = mem_grow(MEM_STORE, &pages, &h->page_cap, h->page_count + 1, UINT32_MAX,
			   sizeof(*h->pages));

	h->pages = pages;
	if (!err)
		h->pages[h->page_count++] = page;
	return !err;
}

static bool has_bytes(const struct store_holes *h, uint32_t page, uint32_t at, const void *wanted,
		      size_t len)
{
	unsigned char bytes[STORE_PAGE];

	return page && page <= h->file_pages && at + len <= STORE_PAGE &&
	       pread(h->fd, bytes, len, (off_t)(page - 1) * STORE_PAGE + at) == (ssize_t)len &&
	       !memcmp(bytes, wanted, len);
}

/* Notes the pages of a row when they are that record, to its end. */
static bool take_chain(struct store_holes *h, const struct store_chain *chain)
{
	struct store_leaf *leaf = &h->leaves[chain->leaf];
	const struct buf *r = &h->record;
	size_t at = (size_t)local_bytes(r->len), before = h->page_count;
	uint32_t page = chain->first;

	if (!has_bytes(h, leaf->page, chain->at, r->data, at))
		return false;
	while (at < r->len) {
		size_t left = r->len - at, n = left < PAGE_CONTENT ? left : PAGE_CONTENT;
		unsigned char next[4];

		if (!has_bytes(h, page, sizeof(next), r->data + at, n) ||
		    pread(h->fd, next, sizeof(next), (off_t)(page - 1) * STORE_PAGE) !=
			    sizeof(next) ||
		    !add_page(h, page)) {
			h->page_count = before;
			return false;
		}
		page = get_u32(next);
		at += n;
	}
	if (++leaf->done == leaf->rows)
		add_page(h, leaf->page);
	return true;
}

void store_holes_add(struct store_holes *h, uint64_t id, const void *terms, size_t terms_len,
		     const void *bytes, size_t len)
{
	size_t low = 0, high = h->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (h->chains[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == h->count || h->chains[low].id != id)
		return;
	make_record(&h->record, terms, terms_len, bytes, len);
	if (h->record.err)
		return;
	/* Pages that are free keep old leaves: an id may show several times. */
	for (; low < h->count && h->chains[low].id == id; low++) {
		if (take_chain(h, &h->chains[low]))
			return;
	}
}

bool store_holes_make(struct store_holes *h)
{
	bool made = false;

	for (size_t i = 0; i < h->page_count; i++) {
		if (!fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       (off_t)(h->pages[i] - 1) * STORE_PAGE, STORE_PAGE))
			made = true;
	}
	h->page_count = 0;
	return made;
}
