// SPDX-License-Identifier: Apache-2.0
/* Unpacking .gnu_debugdata. The output grows as it comes (twofold, at most to the limit), input
 * goes through a small window, and the decoder's memory is accounted and limited by liblzma. */
#include "elf_minidebug.h"

#include "elf_link.h"

#include <errno.h>
#include <lzma.h>
#include <string.h>

#define INPUT_BYTES	   16384
#define OUTPUT_BYTES_FIRST 262144

struct output {
	uint8_t *data;
	size_t cap;
};

static void *decoder_alloc(void *ctx, size_t count, size_t bytes)
{
	(void)ctx;
	return mem_array(MEM_ELF, count, bytes);
}

static void decoder_free(void *ctx, void *p)
{
	(void)ctx;
	mem_free(MEM_ELF, p);
}

static int output_grow(struct output *out, lzma_stream *stream)
{
	size_t used = out->cap, cap = used ? used * 2 : OUTPUT_BYTES_FIRST;
	uint8_t *data;

	if (used >= ELF_MINIDEBUG_MAX)
		return -ERANGE;
	if (cap > ELF_MINIDEBUG_MAX)
		cap = ELF_MINIDEBUG_MAX;
	data = mem_resize(MEM_ELF, out->data, cap);
	if (!data)
		return -ENOMEM;
	out->data = data;
	out->cap = cap;
	stream->next_out = data + used;
	stream->avail_out = cap - used;
	return 0;
}

static int result_of(lzma_ret got)
{
	switch (got) {
	case LZMA_OK:
		return 0;
	case LZMA_MEM_ERROR:
		return -ENOMEM;
	case LZMA_MEMLIMIT_ERROR:
		return -ERANGE;
	default:
		return -EBADMSG;
	}
}

/* 0 at the end of the stream. */
static int unpack(struct elf_file *elf, const Elf64_Shdr *h, lzma_stream *stream, uint8_t *input,
		  struct output *out)
{
	uint64_t at = 0;

	for (;;) {
		lzma_ret got;
		int err = 0;

		if (!stream->avail_in && at < h->sh_size) {
			size_t n = h->sh_size - at < INPUT_BYTES ? (size_t)(h->sh_size - at)
								 : INPUT_BYTES;

			err = elf_read(elf, h->sh_offset + at, input, n);
			stream->next_in = input;
			stream->avail_in = n;
			at += n;
		}
		if (!err && !stream->avail_out)
			err = output_grow(out, stream);
		if (err)
			return err;
		got = lzma_code(stream, at < h->sh_size ? LZMA_RUN : LZMA_FINISH);
		if (got == LZMA_STREAM_END)
			return 0;
		err = result_of(got);
		if (err)
			return err;
	}
}

int elf_minidebug_unpack(struct elf_file *elf, void **ret, size_t *ret_bytes, struct why *why)
{
	static const lzma_allocator allocator = {decoder_alloc, decoder_free, NULL};
	lzma_stream stream = LZMA_STREAM_INIT;
	struct output out = {NULL, 0};
	uint8_t input[INPUT_BYTES];
	Elf64_Shdr h;
	int err = elf_section_named(elf, ".gnu_debugdata", &h);

	if (err || h.sh_type == SHT_NOBITS)
		return -ENOENT;
	if (!elf_section_is_inside(elf, &h))
		return why_set(why, -EBADMSG, ".gnu_debugdata lies outside the file");
	stream.allocator = &allocator;
	err = result_of(lzma_stream_decoder(&stream, ELF_MINIDEBUG_DECODER_MAX, 0));
	if (!err)
		err = unpack(elf, &h, &stream, input, &out);
	lzma_end(&stream);
	if (err) {
		mem_free(MEM_ELF, out.data);
		return why_set(why, err, "%s",
			       err == -ERANGE	? ".gnu_debugdata unpacks to more than is allowed"
			       : err == -ENOMEM ? "out of memory"
						: ".gnu_debugdata is damaged");
	}
	*ret = out.data;
	*ret_bytes = (size_t)stream.total_out;
	return 0;
}
