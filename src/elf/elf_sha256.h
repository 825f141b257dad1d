/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4) for the htlhash, 8 KiB per file, and for what an unwind table is made from.
 * Small code of our own keeps a cryptographic library, with its start-up cost and memory, out of
 * the reader.
 */
#ifndef FLYBALL_ELF_SHA256_H
#define FLYBALL_ELF_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct elf_sha256 {
	uint32_t state[8];
	uint64_t bytes;
	uint8_t block[64];
};
void elf_sha256_init(struct elf_sha256 *h);
void elf_sha256_add(struct elf_sha256 *h, const void *data, size_t bytes);
void elf_sha256_end(struct elf_sha256 *h, uint8_t out[32]);

#endif
