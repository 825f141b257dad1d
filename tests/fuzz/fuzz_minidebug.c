// SPDX-License-Identifier: Apache-2.0
/* .gnu_debugdata and debug links of any bytes: within the limits, memory given back. */
#include "../unit/elf_build.h"
#include "elf/elf_debug.h"
#include "elf/elf_minidebug.h"

static int see(void *ctx, enum elf_debug_kind kind, const char *path)
{
	(void)ctx;
	if (path[0] != '/' || (kind != ELF_DEBUG_SUPPLEMENT && strstr(path, "/../")))
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_debug_links links;
	struct elf_file *elf;
	struct elf_build b;
	size_t bytes;
	void *image;

	if (size > 262144)
		return 0;
	build_init(&b);
	build_section(&b, ".gnu_debugdata", SHT_PROGBITS, 0, data, size, 0);
	build_section(&b, ".gnu_debuglink", SHT_PROGBITS, 0, data, size, 0);
	build_section(&b, ".gnu_debugaltlink", SHT_PROGBITS, 0, data, size, 0);
	build_finish(&b);
	if (elf_open_memory(b.data, b.size, &elf, NULL))
		abort();
	if (!elf_minidebug_unpack(elf, &image, &bytes, NULL)) {
		if (bytes > ELF_MINIDEBUG_MAX)
			abort();
		mem_free(MEM_ELF, image);
	}
	elf_debug_links_read(elf, &links, NULL);
	elf_debug_candidates(elf_get_info(elf), &links, "/bin/a", see, NULL);
	elf_close(elf);
	build_done(&b);
	if (mem_live_bytes(MEM_ELF))
		abort();
	return 0;
}
