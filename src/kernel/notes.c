// SPDX-License-Identifier: Apache-2.0
/* notes: the running kernel's own ELF notes, which it shows in sysfs. */
#include "kernel.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static size_t aligned(uint32_t n)
{
	return ((size_t)n + 3) & ~(size_t)3;
}

static size_t find_build_id(const uint8_t *notes, size_t bytes, uint8_t *out, size_t out_size)
{
	size_t at = 0;

	while (at + sizeof(Elf64_Nhdr) <= bytes) {
		Elf64_Nhdr note;
		size_t name, desc;

		memcpy(&note, notes + at, sizeof(note));
		name = at + sizeof(note);
		desc = name + aligned(note.n_namesz);
		if (desc + note.n_descsz > bytes)
			return 0;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    !memcmp(notes + name, "GNU", 4) && note.n_descsz <= out_size) {
			memcpy(out, notes + desc, note.n_descsz);
			return note.n_descsz;
		}
		at = desc + aligned(note.n_descsz);
	}
	return 0;
}

size_t kernel_build_id(uint8_t *out, size_t out_size)
{
	uint8_t notes[4096];
	int fd = open("/sys/kernel/notes", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, notes, sizeof(notes));
	close(fd);
	return n > 0 ? find_build_id(notes, (size_t)n, out, out_size) : 0;
}
