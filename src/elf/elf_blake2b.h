/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BLAKE2b-256 (RFC 7693), for what is hashed by the megabyte: in plain code it takes a third of the
 * time of SHA-256. Nobody can make two inputs of one digest, so a forged file is another file.
 */
#ifndef FLYBALL_ELF_BLAKE2B_H
#define FLYBALL_ELF_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

#define ELF_BLAKE2B_BYTES 32

struct elf_blake2b {
	uint64_t state[8];
	uint64_t bytes; /* compressed so far */
	size_t used;	/* in block */
	uint8_t block[128];
};
void elf_blake2b_init(struct elf_blake2b *h);
void elf_blake2b_add(struct elf_blake2b *h, const void *data, size_t bytes);
void elf_blake2b_end(struct elf_blake2b *h, uint8_t out[ELF_BLAKE2B_BYTES]);

#endif
