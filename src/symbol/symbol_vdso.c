// SPDX-License-Identifier: Apache-2.0
/* The vDSO: one image for every process of a kernel, so this process's own serves for all. */
#include "symbol_order.h"

#include <elf.h>
#include <errno.h>
#include <sys/auxv.h>

#define VDSO_BYTES_MAX (256U << 10)

/* The kernel's own image, section headers included: they lie at its end. */
static size_t image_bytes(const Elf64_Ehdr *h)
{
	const Elf64_Phdr *p = (const void *)((const char *)h + h->e_phoff);
	uint64_t end = h->e_shoff + (uint64_t)h->e_shnum * h->e_shentsize;

	for (unsigned int i = 0; i < h->e_phnum; i++) {
		if (p[i].p_type == PT_LOAD && p[i].p_offset + p[i].p_filesz > end)
			end = p[i].p_offset + p[i].p_filesz;
	}
	return end < VDSO_BYTES_MAX ? (size_t)end : VDSO_BYTES_MAX;
}

const void *symbol_vdso_image(size_t *ret_bytes)
{
	const Elf64_Ehdr *image = (const void *)getauxval(AT_SYSINFO_EHDR);

	if (image)
		*ret_bytes = image_bytes(image);
	return image;
}

int symbol_lookup_vdso(struct symbol_query *queries, size_t count, struct why *why)
{
	size_t bytes = 0;
	const void *image = symbol_vdso_image(&bytes);
	struct elf_file *elf;
	int err;

	symbol_queries_reset(queries, count);
	if (!image)
		return why_set(why, -ENOENT, "this kernel gives no vDSO");
	err = elf_open_memory(image, bytes, &elf, why);
	if (err)
		return err;
	/* Its link-time addresses start at 0, so they are image-relative as they stand. */
	err = symbol_lookup_file(elf, queries, count, why);
	elf_close(elf);
	return err;
}
