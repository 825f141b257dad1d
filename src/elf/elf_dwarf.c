// SPDX-License-Identifier: Apache-2.0
/* Making the image: an ELF header and section headers of our own, then each section at an offset
 * that agrees with its place in the file modulo the page size, so that it can be mapped there. */
#include "elf_dwarf.h"

#include "elf_link.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <zconf.h>
#include <zlib.h>
#include <zstd.h>

#define PAGE	    4096ULL
#define INPUT_BYTES 16384
#define GNU_HEAD    12 /* "ZLIB", then the size in big endian */

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

static const char *const names[ELF_DWARF_SECTIONS] = {
	[ELF_DWARF_INFO] = "info",     [ELF_DWARF_ABBREV] = "abbrev",
	[ELF_DWARF_LINE] = "line",     [ELF_DWARF_LINE_STR] = "line_str",
	[ELF_DWARF_STR] = "str",       [ELF_DWARF_STR_OFFSETS] = "str_offsets",
	[ELF_DWARF_ADDR] = "addr",     [ELF_DWARF_ARANGES] = "aranges",
	[ELF_DWARF_RANGES] = "ranges", [ELF_DWARF_RNGLISTS] = "rnglists",
};

enum packing { PACK_NONE, PACK_ZLIB, PACK_ZSTD };

/* Where a section's contents lie, and what they become. */
struct source {
	uint64_t offset, bytes; /* in the file */
	uint64_t size;		/* unpacked; 0: not there */
	uint64_t at;		/* in the image */
	enum packing packing;
};

static int compressed_read(struct elf_file *elf, struct source *s, struct why *why)
{
	Elf64_Chdr head;

	if (!elf->info.class64 || s->bytes < sizeof(head) ||
	    elf_read(elf, s->offset, &head, sizeof(head)))
		return why_set(why, -EBADMSG, "a compressed debug section is damaged");
	if (head.ch_type != ELFCOMPRESS_ZLIB && head.ch_type != ELFCOMPRESS_ZSTD)
		return why_set(why, -EOPNOTSUPP, "debug sections are compressed by method %u",
			       head.ch_type);
	s->packing = head.ch_type == ELFCOMPRESS_ZLIB ? PACK_ZLIB : PACK_ZSTD;
	s->offset += sizeof(head);
	s->bytes -= sizeof(head);
	s->size = head.ch_size;
	return 0;
}

static int gnu_compressed_read(struct elf_file *elf, struct source *s, struct why *why)
{
	char head[GNU_HEAD];
	uint64_t size;

	if (s->bytes < sizeof(head) || elf_read(elf, s->offset, head, sizeof(head)) ||
	    memcmp(head, "ZLIB", 4) != 0)
		return why_set(why, -EBADMSG, "a .zdebug section is damaged");
	memcpy(&size, head + 4, sizeof(size));
	s->packing = PACK_ZLIB;
	s->offset += sizeof(head);
	s->bytes -= sizeof(head);
	s->size = be64toh(size);
	return 0;
}

/* Fills in the source of a section if it is one of ours. */
static int section_take(struct elf_file *elf, const Elf64_Shdr *h, const char *name,
			struct source sources[ELF_DWARF_SECTIONS], struct why *why)
{
	bool is_gnu = !strncmp(name, ".zdebug_", 8);
	const char *base = is_gnu ? name + 8 : name + 7;
	size_t i = 0;
	struct source *s;

	if (!is_gnu && strncmp(name, ".debug_", 7) != 0)
		return 0;
	while (i < ELF_DWARF_SECTIONS && strcmp(base, names[i]) != 0)
		i++;
	if (i == ELF_DWARF_SECTIONS || sources[i].size || h->sh_type == SHT_NOBITS)
		return 0;
	if (!elf_section_is_inside(elf, h))
		return why_set(why, -EBADMSG, "%s lies outside the file", name);
	s = &sources[i];
	s->offset = h->sh_offset;
	s->bytes = h->sh_size;
	s->size = h->sh_size;
	if (h->sh_flags & SHF_COMPRESSED)
		return compressed_read(elf, s, why);
	return is_gnu ? gnu_compressed_read(elf, s, why) : 0;
}

static int sections_find(struct elf_file *elf, struct source sources[ELF_DWARF_SECTIONS],
			 struct why *why)
{
	int err = 0;

	for (uint64_t i = 1; !err && i < elf->shnum && i < ELF_SECTIONS_MAX; i++) {
		char name[ELF_SECTION_NAME_MAX];
		Elf64_Shdr h;

		if (elf_section_header(elf, i, &h))
			return why_set(why, -EBADMSG, "section headers are damaged");
		/* Never part of the program: saves looking at the other names. */
		if (h.sh_flags & SHF_ALLOC || h.sh_type == SHT_NULL)
			continue;
		elf_section_name(elf, &h, name, sizeof(name));
		err = section_take(elf, &h, name, sources, why);
	}
	return err;
}

/* Places sections in the image and checks the sums. */
static int layout(const struct elf_file *elf, struct source sources[ELF_DWARF_SECTIONS],
		  uint64_t *ret_bytes, struct why *why)
{
	uint64_t at = PAGE, unpacked = 0;

	for (size_t i = 0; i < ELF_DWARF_SECTIONS; i++) {
		struct source *s = &sources[i];

		if (!s->size)
			continue;
		if (s->size > ELF_DWARF_MAPPED_MAX)
			return why_set(why, -ERANGE, "debug sections are larger than is allowed");
		if (s->packing != PACK_NONE || elf->image)
			unpacked += s->size;
		s->at = at + (s->packing == PACK_NONE ? s->offset % PAGE : 0);
		at = (s->at + s->size + PAGE - 1) / PAGE * PAGE;
		if (at > ELF_DWARF_MAPPED_MAX || unpacked > ELF_DWARF_UNPACKED_MAX)
			return why_set(why, -ERANGE, "debug sections are larger than is allowed");
	}
	*ret_bytes = at;
	return 0;
}

static void *zlib_alloc(void *ctx, uInt count, uInt bytes)
{
	(void)ctx;
	return mem_array(MEM_ELF, count, bytes);
}

static void zlib_free(void *ctx, void *p)
{
	(void)ctx;
	mem_free(MEM_ELF, p);
}

static int inflate_section(struct elf_file *elf, const struct source *s, uint8_t *out)
{
	z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free};
	uint8_t input[INPUT_BYTES];
	uint64_t at = 0;
	int got = Z_OK, err = 0;

	if (inflateInit(&z) != Z_OK)
		return -ENOMEM;
	z.next_out = out;
	z.avail_out = (uInt)s->size;
	while (!err && got == Z_OK) {
		if (!z.avail_in) {
			uint64_t left = s->bytes - at;
			size_t n = left < sizeof(input) ? (size_t)left : sizeof(input);

			err = n ? elf_read(elf, s->offset + at, input, n) : -EBADMSG;
			z.next_in = input;
			z.avail_in = (uInt)n;
			at += n;
		}
		if (!err)
			got = inflate(&z, Z_NO_FLUSH);
	}
	if (!err && (got != Z_STREAM_END || z.avail_out))
		err = got == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
	inflateEnd(&z);
	return err;
}

/* At once, since a stream's window is as large as the sender says. */
static int unzstd_section(struct elf_file *elf, const struct source *s, uint8_t *out)
{
	uint8_t *input;
	size_t got;
	int err;

	if (s->bytes > ELF_DWARF_UNPACKED_MAX)
		return -ERANGE;
	input = mem_alloc(MEM_ELF, (size_t)s->bytes);
	if (!input)
		return -ENOMEM;
	err = elf_read(elf, s->offset, input, (size_t)s->bytes);
	if (!err) {
		got = ZSTD_decompress(out, (size_t)s->size, input, (size_t)s->bytes);
		if (ZSTD_isError(got) || got != s->size)
			err = -EBADMSG;
	}
	mem_free(MEM_ELF, input);
	return err;
}

static int map_over(uint8_t *at, uint64_t bytes, int prot, int fd, uint64_t offset)
{
	int flags = MAP_PRIVATE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);

	return mmap(at, bytes, prot, flags, fd, (off_t)offset) == MAP_FAILED ? -errno : 0;
}

static int section_fill(struct elf_file *elf, const struct source *s, uint8_t *image)
{
	uint64_t lead = s->at % PAGE;
	uint8_t *out = image + s->at;
	int err;

	if (s->packing == PACK_NONE && !elf->image)
		return map_over(out - lead, s->size + lead, PROT_READ, elf->fd, s->offset - lead);
	err = map_over(out - lead, s->size + lead, PROT_READ | PROT_WRITE, -1, 0);
	if (err)
		return err;
	if (s->packing == PACK_NONE)
		return elf_read(elf, s->offset, out, (size_t)s->size);
	return s->packing == PACK_ZLIB ? inflate_section(elf, s, out) : unzstd_section(elf, s, out);
}

static int headers_write(const struct elf_file *elf,
			 const struct source sources[ELF_DWARF_SECTIONS], uint8_t *image)
{
	Elf64_Ehdr *h = (Elf64_Ehdr *)image;
	Elf64_Shdr *sections = (Elf64_Shdr *)(image + sizeof(*h)), *s = sections + 1;
	char *text = (char *)(sections + ELF_DWARF_SECTIONS + 2), *next = text + 1;
	int err = map_over(image, PAGE, PROT_READ | PROT_WRITE, -1, 0);

	if (err)
		return err;
	for (size_t i = 0; i < ELF_DWARF_SECTIONS; i++) {
		if (!sources[i].size)
			continue;
		s->sh_name = (Elf64_Word)(next - text);
		s->sh_type = SHT_PROGBITS;
		s->sh_offset = sources[i].at;
		s->sh_size = sources[i].size;
		s->sh_addralign = 1;
		s++;
		next += snprintf(next, 32, ".debug_%s", names[i]) + 1;
	}
	s->sh_name = (Elf64_Word)(next - text);
	s->sh_type = SHT_STRTAB;
	s->sh_addralign = 1;
	s->sh_offset = (Elf64_Off)((uint8_t *)text - image);
	next += snprintf(next, 16, ".shstrtab") + 1;
	s->sh_size = (Elf64_Xword)(next - text);
	memcpy(h->e_ident, ELFMAG, SELFMAG);
	h->e_ident[EI_CLASS] = ELFCLASS64;
	h->e_ident[EI_DATA] = ELFDATA2LSB;
	h->e_ident[EI_VERSION] = EV_CURRENT;
	h->e_type = ET_DYN;
	h->e_machine = elf->info.machine;
	h->e_version = EV_CURRENT;
	h->e_ehsize = sizeof(*h);
	h->e_shentsize = sizeof(*s);
	h->e_shoff = sizeof(*h);
	h->e_shnum = (Elf64_Half)(s + 1 - sections);
	h->e_shstrndx = (Elf64_Half)(s - sections);
	return 0;
}

static int image_fill(struct elf_file *elf, const struct source sources[ELF_DWARF_SECTIONS],
		      struct elf_dwarf *ret)
{
	uint8_t *image = ret->image;
	int err = headers_write(elf, sources, image);

	for (size_t i = 0; !err && i < ELF_DWARF_SECTIONS; i++) {
		if (!sources[i].size)
			continue;
		ret->sections[i].data = image + sources[i].at;
		ret->sections[i].bytes = (size_t)sources[i].size;
		err = section_fill(elf, &sources[i], image);
	}
	return err;
}

int elf_dwarf_open(struct elf_file *elf, struct elf_dwarf *ret, struct why *why)
{
	struct source sources[ELF_DWARF_SECTIONS] = {{0}};
	struct elf_dwarf dwarf = {NULL, 0, {{NULL, 0}}};
	uint64_t bytes = PAGE;
	int err;

	if (!elf->info.class64)
		return why_set(why, -EOPNOTSUPP, "DWARF of 32-bit programs is not read");
	err = sections_find(elf, sources, why);
	if (err)
		return err;
	if (!sources[ELF_DWARF_INFO].size || !sources[ELF_DWARF_ABBREV].size)
		return why_set(why, -ENOENT, "the file has no DWARF");
	err = layout(elf, sources, &bytes, why);
	if (err)
		return err;
	/* Only addresses: what is used is put over it. */
	dwarf.image =
		mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (dwarf.image == MAP_FAILED)
		return why_set(why, -ENOMEM, "out of address space for %llu bytes of DWARF",
			       (unsigned long long)bytes);
	dwarf.bytes = bytes;
	err = image_fill(elf, sources, &dwarf);
	if (err) {
		elf_dwarf_close(&dwarf);
		return why_set(why, err,
			       err == -ENOMEM	? "out of memory for DWARF"
			       : err == -ERANGE ? "debug sections are larger than is allowed"
						: "a debug section is damaged");
	}
	*ret = dwarf;
	return 0;
}

void elf_dwarf_close(struct elf_dwarf *dwarf)
{
	if (dwarf->image)
		munmap(dwarf->image, dwarf->bytes);
	memset(dwarf, 0, sizeof(*dwarf));
}
