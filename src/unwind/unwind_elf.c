// SPDX-License-Identifier: Apache-2.0
/*
 * Program headers first: they are what the program runs by, and stripped files keep them. Section
 * headers give the size of .eh_frame where they are there, and are the way to it where there is no
 * .eh_frame_hdr (static busybox) and to .debug_frame.
 */
#include "unwind_elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "unwind_encoded.h"

#define HEADERS_MAX  4096U  /* program headers */
#define SECTIONS_MAX 65536U /* section headers looked at */
#define LOADS_MAX    64U

#ifndef SHT_X86_64_UNWIND
#define SHT_X86_64_UNWIND 0x70000001
#endif

struct loads {
	struct load {
		uint64_t vaddr, offset, bytes;
	} load[LOADS_MAX];
	uint32_t count;
	uint64_t header; /* PT_GNU_EH_FRAME's address */
	uint64_t header_bytes;
};

static int get(struct unwind_reader *r, uint64_t offset, void *out, size_t bytes)
{
	struct unwind_cursor c;

	unwind_seek(&c, r, offset, UINT64_MAX);
	unwind_get_bytes(&c, bytes, out, bytes);
	return c.err;
}

static int read_header(struct unwind_reader *r, Elf64_Ehdr *eh, struct why *why)
{
	if (get(r, 0, eh, sizeof(*eh)))
		return why_set(why, r->err ? r->err : -EBADMSG, "not an ELF file: too short");
	if (memcmp(eh->e_ident, ELFMAG, SELFMAG))
		return why_set(why, -EBADMSG, "not an ELF file");
	if (eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_ident[EI_DATA] != ELFDATA2LSB ||
	    (eh->e_machine != EM_X86_64 && eh->e_machine != EM_AARCH64))
		return why_set(why, -EOPNOTSUPP,
			       "an ELF file for machine %u of class %u: only 64-bit x86-64 and "
			       "aarch64 are unwound",
			       eh->e_machine, eh->e_ident[EI_CLASS]);
	if (eh->e_type != ET_EXEC && eh->e_type != ET_DYN)
		return why_set(why, -EOPNOTSUPP, "an ELF file of type %u: not a program or library",
			       eh->e_type);
	return 0;
}

static void add_load(struct unwind_reader *r, struct unwind_place *place, struct loads *loads,
		     const Elf64_Phdr *p)
{
	uint64_t size = r->source->bytes, bytes = p->p_filesz;

	if (p->p_offset >= size)
		return;
	if (bytes > size - p->p_offset)
		bytes = size - p->p_offset;
	if (bytes > UINT64_MAX - p->p_vaddr)
		return;
	if (loads->count < LOADS_MAX)
		loads->load[loads->count++] = (struct load){p->p_vaddr, p->p_offset, bytes};
	if (p->p_flags & PF_X && bytes && place->range_count < UNWIND_RANGES_MAX)
		place->ranges[place->range_count++] =
			(struct unwind_range){p->p_vaddr, p->p_vaddr + bytes};
}

static int read_segments(struct unwind_reader *r, const Elf64_Ehdr *eh, struct unwind_place *place,
			 struct loads *loads, struct why *why)
{
	Elf64_Phdr p;

	if (eh->e_phnum > HEADERS_MAX)
		return why_set(why, -ERANGE, "%u program headers", eh->e_phnum);
	if (eh->e_phnum && eh->e_phentsize != sizeof(p))
		return why_set(why, -EBADMSG, "program headers of %u bytes", eh->e_phentsize);
	for (uint32_t i = 0; i < eh->e_phnum; i++) {
		if (eh->e_phoff > UINT64_MAX / 2 ||
		    get(r, eh->e_phoff + i * sizeof(p), &p, sizeof(p)))
			return why_set(why, r->err ? r->err : -EBADMSG,
				       "the program headers are cut short");
		if (p.p_type == PT_LOAD)
			add_load(r, place, loads, &p);
		if (p.p_type == PT_GNU_EH_FRAME) {
			loads->header = p.p_vaddr;
			loads->header_bytes = p.p_filesz;
		}
	}
	return 0;
}

/* File offset of an address, and how many bytes of the file follow it in its segment. */
static uint64_t to_offset(const struct loads *loads, uint64_t vaddr, uint64_t *ret_left)
{
	for (uint32_t i = 0; i < loads->count; i++) {
		const struct load *l = &loads->load[i];

		if (vaddr >= l->vaddr && vaddr - l->vaddr < l->bytes) {
			*ret_left = l->bytes - (vaddr - l->vaddr);
			return l->offset + (vaddr - l->vaddr);
		}
	}
	*ret_left = 0;
	return 0;
}

/* .eh_frame_hdr: version, three encodings, and the address of .eh_frame. Its count and its search
 * table come after and are left unread. */
static bool through_header(struct unwind_reader *r, const struct loads *loads,
			   struct unwind_place *place)
{
	uint64_t left, offset = to_offset(loads, loads->header, &left), address;
	struct unwind_cursor c;
	uint8_t encoding;

	if (left < 8)
		return false;
	unwind_seek(&c, r, offset, offset + left);
	if (unwind_get8(&c) != 1)
		return false;
	encoding = unwind_get8(&c);
	unwind_skip(&c, 2);
	if (!unwind_get_pointer(&c, encoding, loads->header + 4, loads->header, &address) || c.err)
		return false;
	offset = to_offset(loads, address, &left);
	if (left < 4)
		return false;
	place->found = UNWIND_EH_FRAME;
	place->header = loads->header;
	place->address = address;
	place->offset = offset;
	/* Up to the end of the segment; a zero entry comes before. */
	place->bytes = left < UNWIND_INFO_BYTES_MAX ? left : UNWIND_INFO_BYTES_MAX;
	return true;
}

static bool is_named(struct unwind_reader *r, const Elf64_Shdr *names, const Elf64_Shdr *s,
		     const char *name)
{
	size_t bytes = strlen(name) + 1;
	char text[16];

	if (s->sh_name >= names->sh_size || names->sh_offset > r->source->bytes ||
	    get(r, names->sh_offset + s->sh_name, text, bytes))
		return false;
	return !memcmp(text, name, bytes);
}

/* Finds .eh_frame or .debug_frame. With the address already known by the program headers, only the
 * section that starts there counts, and only its size is taken. */
static bool through_sections(struct unwind_reader *r, const Elf64_Ehdr *eh, const char *name,
			     struct unwind_place *place)
{
	uint32_t count = eh->e_shnum;
	Elf64_Shdr names, s;

	if (!eh->e_shoff || eh->e_shentsize != sizeof(s) || eh->e_shoff > r->source->bytes)
		return false;
	if (!get(r, eh->e_shoff, &s, sizeof(s)) && !count)
		count = s.sh_size < SECTIONS_MAX ? (uint32_t)s.sh_size : SECTIONS_MAX;
	if (eh->e_shstrndx >= count ||
	    get(r, eh->e_shoff + eh->e_shstrndx * sizeof(s), &names, sizeof(names)))
		return false;
	for (uint32_t i = 1; i < count; i++) {
		if (get(r, eh->e_shoff + i * sizeof(s), &s, sizeof(s)))
			return false;
		if ((s.sh_type != SHT_PROGBITS && s.sh_type != SHT_X86_64_UNWIND) ||
		    s.sh_flags & SHF_COMPRESSED || s.sh_size < 4 ||
		    s.sh_offset > r->source->bytes || s.sh_size > r->source->bytes - s.sh_offset)
			continue;
		if (place->bytes && s.sh_addr != place->address)
			continue;
		if (!is_named(r, &names, &s, name))
			continue;
		place->address = s.sh_addr;
		place->offset = s.sh_offset;
		place->bytes = s.sh_size;
		place->is_section = true;
		return true;
	}
	return false;
}

/* Without call frame information there is no C in it either: .text begins with Go's. */
static bool through_go(struct unwind_reader *r, const Elf64_Ehdr *eh, struct unwind_place *place)
{
	struct unwind_place text = {0};

	if (!through_sections(r, eh, ".text", &text) ||
	    !through_sections(r, eh, ".gopclntab", place))
		return false;
	place->found = UNWIND_GO;
	place->header = text.address;
	place->text_offset = text.offset;
	return true;
}

int unwind_locate_with(struct unwind_reader *reader, bool skip_eh_frame, struct unwind_place *ret,
		       struct why *why)
{
	struct unwind_place place = {0};
	struct loads loads = {0};
	Elf64_Ehdr eh;
	int err;

	err = read_header(reader, &eh, why);
	if (!err)
		err = read_segments(reader, &eh, &place, &loads, why);
	if (err)
		return err;
	place.machine = eh.e_machine;
	if (!place.range_count)
		return why_set(why, -ENOENT, "no executable segment has bytes in the file");
	if (!skip_eh_frame) {
		bool found = through_header(reader, &loads, &place);

		if (through_sections(reader, &eh, ".eh_frame", &place) && !found) {
			place.found = UNWIND_EH_FRAME_SECTION;
			found = true;
		}
		if (found)
			goto done;
	}
	if (through_sections(reader, &eh, ".debug_frame", &place)) {
		place.found = UNWIND_DEBUG_FRAME;
		place.address = 0;
		goto done;
	}
	if (eh.e_machine == EM_X86_64 && through_go(reader, &eh, &place))
		goto done;
	return why_set(why, reader->err ? reader->err : -ENOENT,
		       "no call frame information: neither .eh_frame nor .debug_frame");
done:
	*ret = place;
	return 0;
}

int unwind_locate(const struct unwind_source *source, struct unwind_place *ret, struct why *why)
{
	struct unwind_reader reader;
	int err = unwind_reader_init(&reader, source);

	if (err)
		return why_set(why, err, "out of memory");
	err = unwind_locate_with(&reader, false, ret, why);
	unwind_reader_done(&reader);
	return err;
}

/* libc: 153 KB of .eh_frame make 65 KiB; libLLVM-19 6.2 MB make 0.9 MiB; node 2.8 MB make 0.5. */
uint64_t unwind_forecast_bytes(const struct unwind_place *place)
{
	uint64_t text = 0;

	for (uint32_t i = 0; i < place->range_count; i++)
		text += place->ranges[i].end - place->ranges[i].start;
	/* Most of it is names and lines: go 1.26 itself has 4.9 MB for 153 KiB. */
	if (place->found == UNWIND_GO)
		return sizeof(struct fly_table) + (text >> FLY_PAGE_SHIFT) * sizeof(__u64) +
		       place->bytes * 3 / 100;
	return sizeof(struct fly_table) + (text >> FLY_PAGE_SHIFT) * sizeof(__u64) +
	       place->bytes * 17 / 100 + (place->bytes < 200000 ? place->bytes / 5 : 40000);
}
