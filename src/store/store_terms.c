// SPDX-License-Identifier: Apache-2.0
/* store_terms: what a block can be found by, as a sorted set of 32-bit hashes. A thousand terms
 * take about 3 KB, whatever their length, and there is no dictionary that could be lost or would
 * have to be swept. */
#include "store_internal.h"

#include <errno.h>
#include <stdlib.h>

uint32_t store_term_hash(const struct store_term *term)
{
	const unsigned char *p = term->value;
	uint64_t h = 0xcbf29ce484222325ULL; /* FNV-1a */

	h = (h ^ (uint64_t)term->kind) * 0x100000001b3ULL;
	for (size_t i = 0; i < term->len; i++)
		h = (h ^ p[i]) * 0x100000001b3ULL;
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL; /* FNV's upper bits know little of the last bytes */
	return (uint32_t)(h >> 32);
}

static int compare_hashes(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int store_terms_pack_hashes(uint32_t *hashes, size_t count, struct buf *out)
{
	uint32_t last = 0;

	if (count)
		qsort(hashes, count, sizeof(*hashes), compare_hashes);
	for (size_t i = 0; i < count; i++) {
		uint32_t delta = hashes[i] - last;

		if (i && !delta)
			continue;
		last = hashes[i];
		for (; delta >= 0x80; delta >>= 7)
			buf_add_char(out, (char)(delta | 0x80));
		buf_add_char(out, (char)delta);
	}
	return out->err;
}

int store_terms_pack(const struct store_term *terms, size_t count, struct buf *out)
{
	uint32_t *hashes = mem_array(MEM_STORE, count, sizeof(*hashes));
	int err;

	if (!hashes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		hashes[i] = store_term_hash(&terms[i]);
	err = store_terms_pack_hashes(hashes, count, out);
	mem_free(MEM_STORE, hashes);
	return err;
}

int store_terms_unpack(const void *packed, size_t len, uint32_t **hashes, size_t *cap,
		       size_t *count)
{
	const unsigned char *p = packed;
	uint32_t hash = 0;
	size_t i = 0;

	while (i < len) {
		void *list = *hashes;
		uint64_t delta = 0;
		unsigned int shift = 0;
		int err;

		do {
			if (i == len || shift > 28)
				return -EBADMSG;
			delta |= (uint64_t)(p[i] & 0x7f) << shift;
			shift += 7;
		} while (p[i++] & 0x80);
		if (delta > UINT32_MAX - hash)
			return -EBADMSG;
		hash += (uint32_t)delta;
		err = mem_grow(MEM_STORE, &list, cap, *count + 1,
			       (size_t)STORE_TERMS_MAX * STORE_GROUP_MAX, sizeof(**hashes));
		*hashes = list;
		if (err)
			return err;
		(*hashes)[(*count)++] = hash;
	}
	return 0;
}
