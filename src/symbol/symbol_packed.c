// SPDX-License-Identifier: Apache-2.0
/* Reads symbol files. Sizes are checked once; a reference or a border that leads nowhere is found
 * where it is used, so that no file can make this read outside itself. */
#include "symbol_order.h"
#include "symbol_packed.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct symbol_packed {
	struct symbol_packed_header header;
	void *mapped; /* NULL: the bytes are the caller's */
	const char *names;
	const uint32_t *starts, *refs;
	const struct symbol_packed_resumed *resumed;
};

static bool is_sized(const struct symbol_packed_header *h, size_t bytes)
{
	return h->file_bytes == bytes && h->count <= SYMBOL_PACKED_COUNT_MAX &&
	       h->resumed_count <= h->count && h->names_bytes &&
	       h->names_bytes % sizeof(uint32_t) == 0 &&
	       h->names_bytes <= SYMBOL_PACKED_NAMES_MAX + sizeof(uint32_t) &&
	       sizeof(*h) + h->names_bytes + 2ULL * sizeof(uint32_t) * h->count +
			       (uint64_t)sizeof(struct symbol_packed_resumed) * h->resumed_count ==
		       bytes;
}

static bool is_intact(const struct symbol_packed_header *h, const char *data, size_t bytes)
{
	struct symbol_packed_header zeroed = *h;
	uint8_t sum[ELF_BLAKE2B_BYTES];
	struct elf_blake2b hash;

	memset(zeroed.checksum, 0, sizeof(zeroed.checksum));
	elf_blake2b_init(&hash);
	elf_blake2b_add(&hash, data + sizeof(*h), bytes - sizeof(*h));
	elf_blake2b_add(&hash, &zeroed, sizeof(zeroed));
	elf_blake2b_end(&hash, sum);
	return !memcmp(sum, h->checksum, sizeof(sum));
}

static int check(struct symbol_packed *p, const char *data, size_t bytes, const uint8_t *digest,
		 struct why *why)
{
	struct symbol_packed_header *h = &p->header;

	if (bytes < sizeof(*h))
		return why_set(why, -EBADMSG, "the symbol file is cut short");
	memcpy(h, data, sizeof(*h));
	if (memcmp(h->magic, SYMBOL_PACKED_MAGIC, sizeof(h->magic)) != 0)
		return why_set(why, -EBADMSG, "not a symbol file");
	if (h->version != SYMBOL_PACKED_VERSION || h->header_bytes != sizeof(*h))
		return why_set(why, -EOPNOTSUPP, "a symbol file of another version");
	if (!is_sized(h, bytes) || h->is_stripped > 1 || h->is_protected > 1 ||
	    h->info.build_id_len > ELF_BUILD_ID_MAX || h->info.segment_count > ELF_SEGMENTS_MAX ||
	    !memchr(h->link, 0, sizeof(h->link)) || !is_intact(h, data, bytes))
		return why_set(why, -EBADMSG, "the symbol file is damaged");
	if (digest && memcmp(digest, h->digest, sizeof(h->digest)) != 0)
		return why_set(why, -ESTALE, "the symbol file was made of something else");
	p->names = data + sizeof(*h);
	p->starts = (const void *)(p->names + h->names_bytes);
	p->refs = p->starts + h->count;
	p->resumed = (const void *)(p->refs + h->count);
	if (p->names[0] || p->names[h->names_bytes - 1])
		return why_set(why, -EBADMSG, "the names of the symbol file have no end");
	return 0;
}

int symbol_packed_open_memory(const void *data, size_t bytes, const uint8_t *digest,
			      struct symbol_packed **ret, struct why *why)
{
	struct symbol_packed *p = mem_alloc(MEM_SYMBOL, sizeof(*p));
	int err;

	if (!p)
		return why_set(why, -ENOMEM, "out of memory");
	err = check(p, data, bytes, digest, why);
	if (err)
		mem_free(MEM_SYMBOL, p);
	else
		*ret = p;
	return err;
}

int symbol_packed_open(int fd, const uint8_t *digest, struct symbol_packed **ret, struct why *why)
{
	struct stat st;
	size_t bytes;
	void *map;
	int err;

	if (fstat(fd, &st))
		return why_set(why, -errno, "fstat: %s", strerror(errno));
	if (st.st_size < (off_t)sizeof(struct symbol_packed_header) ||
	    st.st_size > SYMBOL_PACKED_BYTES_MAX)
		return why_set(why, -EBADMSG, "the symbol file is cut short, or past the limit");
	bytes = (size_t)st.st_size;
	map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return why_set(why, -errno, "mmap: %s", strerror(errno));
	err = symbol_packed_open_memory(map, bytes, digest, ret, why);
	if (err)
		munmap(map, bytes);
	else
		(*ret)->mapped = map;
	return err;
}

void symbol_packed_close(struct symbol_packed *p)
{
	if (!p)
		return;
	if (p->mapped)
		munmap(p->mapped, p->header.file_bytes);
	mem_free(MEM_SYMBOL, p);
}

const struct symbol_packed_header *symbol_packed_get_header(const struct symbol_packed *p)
{
	return &p->header;
}

bool symbol_packed_find(const struct symbol_packed *p, uint64_t address,
			struct symbol_packed_hit *ret)
{
	const struct symbol_packed_header *h = &p->header;
	uint64_t offset = address - h->base, start;
	size_t low = 0, count = h->count;
	uint32_t ref, back = 0;

	if (address < h->base || !count || offset < p->starts[0])
		return false;
	/* The last start is below 4 GiB, and so is what it stands for. */
	if (offset > UINT32_MAX)
		return false;
	while (count > 1) {
		size_t half = count / 2;

		low += p->starts[low + half] <= offset ? half : 0;
		count -= half;
	}
	ref = p->refs[low];
	if (ref & SYMBOL_PACKED_RESUMED) {
		uint32_t n = ref & ~SYMBOL_PACKED_RESUMED;

		if (n >= h->resumed_count)
			return false;
		ref = p->resumed[n].ref;
		back = p->resumed[n].back;
	}
	start = h->base + p->starts[low] - back;
	ret->is_final = ref & SYMBOL_PACKED_FINAL;
	ref &= ~(SYMBOL_PACKED_FINAL | SYMBOL_PACKED_RESUMED);
	if (!ref || ref >= h->names_bytes || start > address)
		return false;
	ret->start = start;
	ret->name = p->names + ref;
	return ret->name[0] != 0;
}

int symbol_packed_lookup(const struct symbol_packed *p, struct symbol_query *queries, size_t count,
			 struct why *why)
{
	symbol_queries_reset(queries, count);
	for (size_t i = 0; i < count; i++) {
		struct symbol_packed_hit hit;
		char text[SYMBOL_NAME_MAX], *name;

		if (!symbol_packed_find(p, queries[i].address, &hit))
			continue;
		/* What is in the file was written by nobody we trust. */
		if (hit.is_final)
			text_print(hit.name, strlen(hit.name), text, sizeof(text));
		else
			symbol_demangle(hit.name, text, sizeof(text));
		name = mem_copy_string(MEM_SYMBOL, text);
		if (!name)
			return why_set(why, -ENOMEM, "out of memory");
		symbol_answer(&queries[i], hit.start, name, NULL);
	}
	return 0;
}
