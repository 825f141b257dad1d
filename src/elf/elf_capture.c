// SPDX-License-Identifier: Apache-2.0
/* Blocks of a file, each read once and kept: whoever changes the file meanwhile (or serves it, by
 * FUSE, and says something else each time) is too late for what was read already. */
#include "elf_read.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define BLOCK_BYTES 65536U
#define BLOCKS_MAX  262144U /* files of 16 GiB */

struct elf_capture {
	size_t count, left; /* blocks: of the file, still to be kept */
	uint8_t *blocks[];
};

static const uint8_t *block_get(struct elf_file *elf, size_t index)
{
	struct elf_capture *c = elf->capture;
	uint64_t offset = (uint64_t)index * BLOCK_BYTES, bytes = elf->info.file_bytes - offset;

	if (c->blocks[index])
		return c->blocks[index];
	if (!c->left)
		return NULL;
	c->blocks[index] = mem_alloc(MEM_ELF, BLOCK_BYTES);
	if (!c->blocks[index])
		return NULL;
	if (elf_read_uncaptured(elf, offset, c->blocks[index],
				bytes < BLOCK_BYTES ? (size_t)bytes : BLOCK_BYTES)) {
		mem_free(MEM_ELF, c->blocks[index]);
		c->blocks[index] = NULL;
		return NULL;
	}
	c->left--;
	return c->blocks[index];
}

int elf_capture_read(struct elf_file *elf, uint64_t offset, void *out, size_t bytes)
{
	uint8_t *p = out;

	while (bytes) {
		size_t at = (size_t)(offset % BLOCK_BYTES), n = BLOCK_BYTES - at;
		const uint8_t *block = block_get(elf, (size_t)(offset / BLOCK_BYTES));

		if (!block)
			return -ERANGE;
		n = bytes < n ? bytes : n;
		memcpy(p, block + at, n);
		p += n;
		offset += n;
		bytes -= n;
	}
	return 0;
}

void elf_capture_free(struct elf_capture *capture)
{
	for (size_t i = 0; capture && i < capture->count; i++)
		mem_free(MEM_ELF, capture->blocks[i]);
	mem_free(MEM_ELF, capture);
}

int elf_open_captured(int fd, size_t bytes_max, struct elf_file **ret, struct why *why)
{
	struct elf_capture *capture;
	struct stat st;
	uint64_t count;

	if (fstat(fd, &st))
		return why_set(why, -errno, "fstat: %s", strerror(errno));
	count = ((uint64_t)st.st_size + BLOCK_BYTES - 1) / BLOCK_BYTES;
	if (count > BLOCKS_MAX)
		return why_set(why, -ERANGE, "the file is too large");
	capture = mem_alloc(MEM_ELF, sizeof(*capture) + count * sizeof(capture->blocks[0]));
	if (!capture)
		return why_set(why, -ENOMEM, "out of memory");
	capture->count = (size_t)count;
	capture->left = bytes_max / BLOCK_BYTES;
	return elf_open_with(fd, (uint64_t)st.st_size, capture, ret, why);
}
