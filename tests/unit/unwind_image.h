/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small ELF image made by hand for the tests of unwind: one executable segment at IMAGE_TEXT, one
 * with .eh_frame_hdr and .eh_frame at IMAGE_DATA. Nothing is checked here: tests also want damage.
 */
#ifndef TEST_UNWIND_IMAGE_H
#define TEST_UNWIND_IMAGE_H

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/unwind.h"

#define IMAGE_TEXT  0x10000ULL
#define IMAGE_DATA  0x40000000ULL
#define IMAGE_FRAME 0x400ULL /* offset of .eh_frame in the second segment and in the file */

struct image {
	uint8_t *bytes;
	size_t len, cap;
	uint64_t text_bytes;
	size_t cie, fail_at; /* file offset of the last CIE; reads past fail_at fail, 0: none */
	size_t open;	     /* the entry being written */
};

static inline void image_add(struct image *im, const void *data, size_t n)
{
	while (im->len + n > im->cap) {
		im->cap = im->cap ? im->cap * 2 : 4096;
		im->bytes = realloc(im->bytes, im->cap);
		if (!im->bytes)
			abort();
	}
	if (n && data)
		memcpy(im->bytes + im->len, data, n);
	else if (n)
		memset(im->bytes + im->len, 0, n);
	im->len += n;
}

static inline void image_u8(struct image *im, unsigned int v)
{
	uint8_t b = (uint8_t)v;

	image_add(im, &b, 1);
}

static inline void image_u32(struct image *im, uint32_t v)
{
	image_add(im, &v, 4);
}

static inline void image_code(struct image *im, const char *code, size_t n)
{
	image_add(im, code, n);
}

#define CODE(im, text) image_code(im, text, sizeof(text) - 1)

static inline void image_init(struct image *im, uint16_t machine, uint64_t text_bytes)
{
	Elf64_Ehdr eh = {.e_type = ET_DYN,
			 .e_machine = machine,
			 .e_version = 1,
			 .e_phoff = sizeof(eh),
			 .e_ehsize = sizeof(eh),
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_phnum = 4 /* the last is for the test */};
	uint8_t head[12] = {1, 0x1b, 0x03, 0x3b};
	int32_t at = (int32_t)(IMAGE_FRAME - 0x300 - 4);

	*im = (struct image){.text_bytes = text_bytes};
	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	image_add(im, &eh, sizeof(eh));
	image_add(im, NULL, 0x300 - im->len);
	/* .eh_frame_hdr at 0x300: its count is a lie */
	memcpy(head + 4, &at, 4);
	memset(head + 8, 0xff, 4);
	image_add(im, head, sizeof(head));
	image_add(im, NULL, IMAGE_FRAME - im->len);
}

static inline void image_begin(struct image *im)
{
	im->open = im->len;
	image_u32(im, 0);
}

static inline void image_end(struct image *im)
{
	uint32_t n;

	while ((im->len - im->open) % 4)
		image_u8(im, 0);
	n = (uint32_t)(im->len - im->open - 4);
	memcpy(im->bytes + im->open, &n, 4);
}

/* A CIE: letters, then the augmentation data, then instructions. */
static inline void image_cie(struct image *im, const char *letters, const char *data,
			     size_t data_bytes, unsigned int ra, const char *code,
			     size_t code_bytes)
{
	im->cie = im->len;
	image_begin(im);
	image_u32(im, 0);
	image_u8(im, 1);
	image_add(im, letters, strlen(letters) + 1);
	image_u8(im, 1);
	image_u8(im, 0x78); /* data alignment -8 */
	image_u8(im, ra);
	if (letters[0] == 'z') {
		image_u8(im, (unsigned int)data_bytes);
		image_add(im, data, data_bytes);
	}
	image_add(im, code, code_bytes);
	image_end(im);
}

/* As GCC writes it: CFA = SP + 8, return address at CFA - 8; pointers pcrel, sdata4. */
static inline void image_cie_x86(struct image *im)
{
	image_cie(im, "zR", "\x1b", 1, 16, "\x0c\x07\x08\x90\x01", 5);
}

static inline void image_cie_aarch64(struct image *im)
{
	image_cie(im, "zR", "\x1b", 1, 30, "\x0c\x1f\x00", 3);
}

/* Opens an FDE with pcrel sdata4 pointers; instructions follow, then image_end. */
static inline void image_fde(struct image *im, uint64_t start, uint32_t bytes)
{
	image_begin(im);
	image_u32(im, (uint32_t)(im->len - im->cie));
	image_u32(im, (uint32_t)(start - (IMAGE_DATA + im->len)));
	image_u32(im, bytes);
	image_u8(im, 0); /* no augmentation data */
}

/* Writes the program headers, for the length there is now. */
static inline void image_close(struct image *im)
{
	Elf64_Phdr p[3] = {
		{.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = IMAGE_TEXT},
		{.p_type = PT_LOAD, .p_flags = PF_R, .p_vaddr = IMAGE_DATA},
		{.p_type = PT_GNU_EH_FRAME, .p_vaddr = IMAGE_DATA + 0x300, .p_filesz = 12},
	};

	image_u32(im, 0);
	/* The text lies over the rest of the file: what it holds does not matter. */
	if (im->len < im->text_bytes)
		image_add(im, NULL, im->text_bytes - im->len);
	p[0].p_filesz = im->text_bytes;
	p[1].p_filesz = im->len;
	memcpy(im->bytes + sizeof(Elf64_Ehdr), p, sizeof(p));
}

static inline void image_free(struct image *im)
{
	free(im->bytes);
}

static inline int image_read(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	struct image *im = ctx;

	if (offset > im->len || bytes > im->len - offset)
		return -EBADMSG;
	if (im->fail_at && offset + bytes > im->fail_at)
		return -EIO;
	memcpy(out, im->bytes + offset, bytes);
	return 0;
}

static inline struct unwind_source image_source(struct image *im)
{
	return (struct unwind_source){.read = image_read, .ctx = im, .bytes = im->len};
}

#endif
