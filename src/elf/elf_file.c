// SPDX-License-Identifier: Apache-2.0
/* What a file is: headers, executable segments, build-id, htlhash. Counts and offsets are the
 * file's word and are checked against its size before use (gABI chapters 4 and 5). */
#include "elf_read.h"

#include "elf_sha256.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOTE_BYTES_MAX (1U << 20) /* of a note segment or section looked through */
#define NOTES_MAX      4096
#define HASH_BYTES     4096

int elf_read(struct elf_file *elf, uint64_t offset, void *out, size_t bytes)
{
	if (offset > elf->info.file_bytes || bytes > elf->info.file_bytes - offset)
		return -EBADMSG;
	if (elf->image) {
		memcpy(out, elf->image + offset, bytes);
		return 0;
	}
	if (elf->capture)
		return elf_capture_read(elf, offset, out, bytes);
	return elf_read_uncaptured(elf, offset, out, bytes);
}

int elf_read_uncaptured(struct elf_file *elf, uint64_t offset, void *out, size_t bytes)
{
	uint8_t *p = out;

	while (bytes) {
		ssize_t n = pread(elf->fd, p, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG;
		p += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

const void *elf_look(struct elf_file *elf, struct elf_window *window, uint64_t offset, size_t bytes)
{
	uint64_t size = elf->info.file_bytes;

	if (offset > size || bytes > size - offset || bytes > window->size)
		return NULL;
	if (offset < window->start || offset - window->start > window->bytes ||
	    bytes > window->bytes - (offset - window->start)) {
		size_t want = window->size;

		if (want > size - offset)
			want = (size_t)(size - offset);
		window->bytes = 0;
		if (elf_read(elf, offset, window->data, want))
			return NULL;
		window->start = offset;
		window->bytes = want;
	}
	return window->data + (offset - window->start);
}

int elf_program_header(struct elf_file *elf, uint64_t index, Elf64_Phdr *ret)
{
	size_t each = elf->info.class64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
	const void *p = elf_look(elf, &elf->headers, elf->phoff + index * each, each);
	Elf32_Phdr h;

	if (!p)
		return -EBADMSG;
	if (elf->info.class64) {
		memcpy(ret, p, sizeof(*ret));
		return 0;
	}
	memcpy(&h, p, sizeof(h));
	*ret = (Elf64_Phdr){
		.p_type = h.p_type,
		.p_flags = h.p_flags,
		.p_offset = h.p_offset,
		.p_vaddr = h.p_vaddr,
		.p_filesz = h.p_filesz,
		.p_memsz = h.p_memsz,
		.p_align = h.p_align,
	};
	return 0;
}

int elf_section_header(struct elf_file *elf, uint64_t index, Elf64_Shdr *ret)
{
	size_t each = elf->info.class64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr);
	const void *p = elf_look(elf, &elf->headers, elf->shoff + index * each, each);
	Elf32_Shdr h;

	if (!p)
		return -EBADMSG;
	if (elf->info.class64) {
		memcpy(ret, p, sizeof(*ret));
		return 0;
	}
	memcpy(&h, p, sizeof(h));
	*ret = (Elf64_Shdr){
		.sh_type = h.sh_type,
		.sh_flags = h.sh_flags,
		.sh_addr = h.sh_addr,
		.sh_offset = h.sh_offset,
		.sh_size = h.sh_size,
		.sh_link = h.sh_link,
		.sh_info = h.sh_info,
		.sh_addralign = h.sh_addralign,
		.sh_entsize = h.sh_entsize,
	};
	return 0;
}

/* The counts, with the extensions for more than 16 bits: PN_XNUM (sh_info of section 0) and
 * e_shnum 0 (its sh_size). A section table that cannot be is no table: stripped and mangled files
 * run all the same. */
static void headers_count(struct elf_file *elf, uint16_t shentsize, uint16_t e_phnum,
			  uint16_t e_shnum)
{
	size_t each = elf->info.class64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr);
	Elf64_Shdr first;

	elf->phnum = e_phnum;
	elf->shnum = e_shnum;
	if (!elf->shoff || shentsize != each || elf->shoff > elf->info.file_bytes ||
	    elf_section_header(elf, 0, &first)) {
		elf->shnum = 0;
		return;
	}
	if (e_phnum == PN_XNUM)
		elf->phnum = first.sh_info;
	if (e_shnum == 0)
		elf->shnum = first.sh_size;
	if (elf->shnum > (elf->info.file_bytes - elf->shoff) / each)
		elf->shnum = 0;
}

static int header_read64(struct elf_file *elf, struct why *why)
{
	Elf64_Ehdr h;

	if (elf_read(elf, 0, &h, sizeof(h)))
		return why_set(why, -EBADMSG, "the ELF header is cut short");
	if (h.e_phnum && h.e_phentsize != sizeof(Elf64_Phdr))
		return why_set(why, -EBADMSG, "program headers of %u bytes", h.e_phentsize);
	elf->info.machine = h.e_machine;
	elf->info.type = h.e_type;
	elf->phoff = h.e_phoff;
	elf->shoff = h.e_shoff;
	headers_count(elf, h.e_shentsize, h.e_phnum, h.e_shnum);
	return 0;
}

static int header_read32(struct elf_file *elf, struct why *why)
{
	Elf32_Ehdr h;

	if (elf_read(elf, 0, &h, sizeof(h)))
		return why_set(why, -EBADMSG, "the ELF header is cut short");
	if (h.e_phnum && h.e_phentsize != sizeof(Elf32_Phdr))
		return why_set(why, -EBADMSG, "program headers of %u bytes", h.e_phentsize);
	elf->info.machine = h.e_machine;
	elf->info.type = h.e_type;
	elf->phoff = h.e_phoff;
	elf->shoff = h.e_shoff;
	headers_count(elf, h.e_shentsize, h.e_phnum, h.e_shnum);
	return 0;
}

static int header_read(struct elf_file *elf, struct why *why)
{
	unsigned char ident[EI_NIDENT];
	int err = elf_read(elf, 0, ident, sizeof(ident));

	if (err == -EBADMSG || (!err && memcmp(ident, ELFMAG, SELFMAG) != 0))
		return why_set(why, -EBADMSG, "not an ELF file");
	if (err)
		return why_set(why, err, "cannot read: %s", strerror(-err));
	if (ident[EI_DATA] != ELFDATA2LSB)
		return why_set(why, -EOPNOTSUPP, "not little-endian");
	elf->info.class64 = ident[EI_CLASS] == ELFCLASS64;
	if (elf->info.class64)
		return header_read64(elf, why);
	if (ident[EI_CLASS] == ELFCLASS32)
		return header_read32(elf, why);
	return why_set(why, -EBADMSG, "ELF class %u", ident[EI_CLASS]);
}

/* Looks for NT_GNU_BUILD_ID in bytes of notes. A note that runs past the end ends the search. */
static void notes_search(struct elf_file *elf, uint64_t offset, uint64_t bytes, uint64_t align)
{
	uint64_t at = 0, step = align == 8 ? 8 : 4;

	if (bytes > NOTE_BYTES_MAX)
		bytes = NOTE_BYTES_MAX;
	for (int i = 0; i < NOTES_MAX && at + sizeof(Elf64_Nhdr) <= bytes; i++) {
		const void *p = elf_look(elf, &elf->names, offset + at, sizeof(Elf64_Nhdr));
		uint64_t desc_at, next;
		Elf64_Nhdr n;
		char name[4];

		if (!p)
			return;
		memcpy(&n, p, sizeof(n));
		desc_at = (at + sizeof(n) + n.n_namesz + step - 1) & ~(step - 1);
		next = (desc_at + n.n_descsz + step - 1) & ~(step - 1);
		if (desc_at + n.n_descsz > bytes)
			return;
		if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == sizeof(name) && n.n_descsz &&
		    n.n_descsz <= ELF_BUILD_ID_MAX &&
		    !elf_read(elf, offset + at + sizeof(n), name, sizeof(name)) &&
		    !memcmp(name, "GNU", 4)) {
			if (!elf_read(elf, offset + desc_at, elf->info.build_id, n.n_descsz))
				elf->info.build_id_len = (uint8_t)n.n_descsz;
			return;
		}
		at = next;
	}
}

static int segments_read(struct elf_file *elf, struct why *why)
{
	struct elf_info *info = &elf->info;
	Elf64_Phdr h;

	if (elf->phnum > ELF_HEADERS_MAX)
		return why_set(why, -ERANGE, "%llu program headers",
			       (unsigned long long)elf->phnum);
	for (uint64_t i = 0; i < elf->phnum; i++) {
		if (elf_program_header(elf, i, &h))
			return why_set(why, -EBADMSG, "the program headers are cut short");
		if (h.p_type == PT_LOAD && h.p_flags & PF_X &&
		    info->segment_count < ELF_SEGMENTS_MAX)
			info->segments[info->segment_count++] =
				(struct elf_segment){h.p_offset, h.p_vaddr, h.p_filesz};
		if (h.p_type == PT_NOTE && !info->build_id_len)
			notes_search(elf, h.p_offset, h.p_filesz, h.p_align);
	}
	return 0;
}

/* Marks the executable sections; finds the build-id where no program header leads to it. */
static void sections_read(struct elf_file *elf)
{
	Elf64_Shdr h;

	if (elf->shnum > ELF_SECTIONS_MAX)
		elf->shnum = 0;
	for (uint64_t i = 0; i < elf->shnum; i++) {
		if (elf_section_header(elf, i, &h)) {
			elf->shnum = 0;
			return;
		}
		if (h.sh_flags & SHF_EXECINSTR && i < SHN_LORESERVE)
			elf->executable_sections[i / 8] |= (uint8_t)(1U << (i % 8));
		if (h.sh_type == SHT_NOTE && !elf->info.build_id_len)
			notes_search(elf, h.sh_offset, h.sh_size, h.sh_addralign);
	}
}

/* SHA-256 over head, tail and big-endian size; the first half is kept (OTLP profiles, mappings). */
static int htlhash_compute(struct elf_file *elf, struct why *why)
{
	uint64_t size = elf->info.file_bytes;
	size_t n = size < HASH_BYTES ? (size_t)size : HASH_BYTES;
	uint8_t sum[32], be[8], data[HASH_BYTES];
	struct elf_sha256 h;

	elf_sha256_init(&h);
	if (elf_read(elf, 0, data, n))
		goto changed;
	elf_sha256_add(&h, data, n);
	if (elf_read(elf, size - n, data, n))
		goto changed;
	elf_sha256_add(&h, data, n);
	for (unsigned int i = 0; i < 8; i++)
		be[i] = (uint8_t)(size >> (56 - 8 * i));
	elf_sha256_add(&h, be, sizeof(be));
	elf_sha256_end(&h, sum);
	memcpy(elf->info.htlhash, sum, sizeof(elf->info.htlhash));
	return 0;
changed:
	return why_set(why, -EBADMSG, "the file shrank while it was read");
}

static int machine_check(const struct elf_info *info, struct why *why)
{
	if (info->machine == EM_386 && !info->class64)
		return 0;
	if ((info->machine == EM_X86_64 || info->machine == EM_AARCH64) && info->class64)
		return 0;
	/* x32 and ILP32 are programs of these machines as well; they are described like i386. */
	if ((info->machine == EM_X86_64 || info->machine == EM_ARM) && !info->class64)
		return 0;
	return why_set(why, -EOPNOTSUPP, "an ELF file for machine %u", info->machine);
}

static int open_common(struct elf_file *elf, struct elf_file **ret, struct why *why)
{
	int err;

	elf->headers = (struct elf_window){.data = elf->header_data, .size = 4096};
	elf->symbols = (struct elf_window){.data = elf->symbol_data, .size = 65536};
	elf->names = (struct elf_window){.data = elf->name_data, .size = 4096};
	err = header_read(elf, why);
	if (!err)
		err = machine_check(&elf->info, why);
	if (!err)
		err = segments_read(elf, why);
	if (!err) {
		sections_read(elf);
		err = htlhash_compute(elf, why);
	}
	if (err) {
		elf_close(elf);
		return err;
	}
	*ret = elf;
	return 0;
}

int elf_open(int fd, struct elf_file **ret, struct why *why)
{
	struct stat st;

	if (fstat(fd, &st))
		return why_set(why, -errno, "fstat: %s", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return why_set(why, -EBADMSG, "not a regular file");
	return elf_open_with(fd, (uint64_t)st.st_size, NULL, ret, why);
}

int elf_open_with(int fd, uint64_t bytes, struct elf_capture *capture, struct elf_file **ret,
		  struct why *why)
{
	struct elf_file *elf = mem_alloc(MEM_ELF, sizeof(*elf));

	if (!elf) {
		elf_capture_free(capture);
		return why_set(why, -ENOMEM, "out of memory");
	}
	elf->fd = fd;
	elf->capture = capture;
	elf->info.file_bytes = bytes;
	return open_common(elf, ret, why);
}

int elf_open_memory(const void *image, size_t bytes, struct elf_file **ret, struct why *why)
{
	struct elf_file *elf = mem_alloc(MEM_ELF, sizeof(*elf));

	if (!elf)
		return why_set(why, -ENOMEM, "out of memory");
	elf->fd = -1;
	elf->image = image;
	elf->info.file_bytes = bytes;
	return open_common(elf, ret, why);
}

void elf_close(struct elf_file *elf)
{
	if (elf)
		elf_capture_free(elf->capture);
	mem_free(MEM_ELF, elf);
}

const struct elf_info *elf_get_info(const struct elf_file *elf)
{
	return &elf->info;
}

int elf_offset_to_vaddr(const struct elf_info *info, uint64_t offset, uint64_t *ret_vaddr)
{
	const uint64_t page = 4096;

	for (uint32_t i = 0; i < info->segment_count && i < ELF_SEGMENTS_MAX; i++) {
		const struct elf_segment *s = &info->segments[i];

		if (offset >= s->offset && offset - s->offset < s->file_bytes) {
			*ret_vaddr = s->vaddr + (offset - s->offset);
			return 0;
		}
	}
	/* The kernel maps whole pages: what lies around a segment is mapped with it. */
	for (uint32_t i = 0; i < info->segment_count && i < ELF_SEGMENTS_MAX; i++) {
		const struct elf_segment *s = &info->segments[i];
		uint64_t before = s->offset % page;
		uint64_t whole = (before + s->file_bytes + page - 1) / page * page;

		if (s->file_bytes > info->file_bytes)
			continue;
		if (offset >= s->offset - before && offset - (s->offset - before) < whole) {
			*ret_vaddr = s->vaddr - before + (offset - (s->offset - before));
			return 0;
		}
	}
	return -ENOENT;
}

int elf_vaddr_to_offset(struct elf_file *elf, uint64_t vaddr, uint64_t *ret_offset)
{
	Elf64_Phdr h;

	for (uint64_t i = 0; i < elf->phnum; i++) {
		if (elf_program_header(elf, i, &h))
			return -ENOENT;
		if (h.p_type != PT_LOAD || vaddr < h.p_vaddr || vaddr - h.p_vaddr >= h.p_filesz)
			continue;
		*ret_offset = h.p_offset + (vaddr - h.p_vaddr);
		return 0;
	}
	return -ENOENT;
}

int elf_section_range(struct elf_file *elf, uint16_t section, uint64_t *ret_start,
		      uint64_t *ret_end)
{
	Elf64_Shdr h;

	if (section >= elf->shnum || section == SHN_UNDEF || section >= SHN_LORESERVE ||
	    elf_section_header(elf, section, &h) || h.sh_addr > UINT64_MAX - h.sh_size)
		return -ENOENT;
	*ret_start = h.sh_addr;
	*ret_end = h.sh_addr + h.sh_size;
	return 0;
}
