// SPDX-License-Identifier: Apache-2.0
/* BLAKE2b as RFC 7693 writes it: section 2.6 has the vectors, 3.1 the mixing, 3.2 the compression.
 * The last block is compressed by elf_blake2b_end, so a full one waits until more comes. */
#include "elf_blake2b.h"

#include <string.h>

#define ROUNDS 12

static const uint64_t iv[8] = {
	0x6a09e667f3bcc908U, 0xbb67ae8584caa73bU, 0x3c6ef372fe94f82bU, 0xa54ff53a5f1d36f1U,
	0x510e527fade682d1U, 0x9b05688c2b3e6c1fU, 0x1f83d9abfb41bd6bU, 0x5be0cd19137e2179U,
};

static const uint8_t sigma[10][16] = {
	{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	{14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
	{11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
	{7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
	{9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
	{2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
	{12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
	{13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
	{6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
	{10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t rotate(uint64_t x, unsigned int n)
{
	return x >> n | x << (64 - n);
}

static inline void mix(uint64_t *v, unsigned int a, unsigned int b, unsigned int c, unsigned int d,
		       uint64_t x, uint64_t y)
{
	v[a] += v[b] + x;
	v[d] = rotate(v[d] ^ v[a], 32);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 24);
	v[a] += v[b] + y;
	v[d] = rotate(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 63);
}

static void compress(struct elf_blake2b *h, const uint8_t *block, size_t bytes, uint64_t is_last)
{
	uint64_t v[16], m[16];

	h->bytes += bytes;
	memcpy(m, block, sizeof(m));
	memcpy(v, h->state, sizeof(h->state));
	memcpy(v + 8, iv, sizeof(iv));
	v[12] ^= h->bytes;
	v[14] ^= 0 - is_last;

#pragma GCC unroll 12
	for (int i = 0; i < ROUNDS; i++) {
		const uint8_t *s = sigma[i % 10];

		mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
		mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
		mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
		mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
		mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
		mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
		mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
		mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
	}
	for (int i = 0; i < 8; i++)
		h->state[i] ^= v[i] ^ v[i + 8];
}

void elf_blake2b_init(struct elf_blake2b *h)
{
	memset(h, 0, sizeof(*h));
	memcpy(h->state, iv, sizeof(iv));
	/* Parameters: digest length, no key, fanout and depth 1. */
	h->state[0] ^= 0x01010000U ^ ELF_BLAKE2B_BYTES;
}

void elf_blake2b_add(struct elf_blake2b *h, const void *data, size_t bytes)
{
	const uint8_t *p = data;

	while (bytes) {
		size_t n = sizeof(h->block) - h->used;

		if (!h->used && bytes > sizeof(h->block)) {
			compress(h, p, sizeof(h->block), 0);
			p += sizeof(h->block);
			bytes -= sizeof(h->block);
			continue;
		}
		if (!n) {
			compress(h, h->block, sizeof(h->block), 0);
			h->used = 0;
			continue;
		}
		n = bytes < n ? bytes : n;
		memcpy(h->block + h->used, p, n);
		h->used += n;
		p += n;
		bytes -= n;
	}
}

void elf_blake2b_end(struct elf_blake2b *h, uint8_t out[ELF_BLAKE2B_BYTES])
{
	memset(h->block + h->used, 0, sizeof(h->block) - h->used);
	compress(h, h->block, h->used, 1);
	memcpy(out, h->state, ELF_BLAKE2B_BYTES);
}
