// SPDX-License-Identifier: Apache-2.0
/*
 * Identity of a table is what it says and where: the hash is over machine, addresses of the text
 * and of the information, and the information itself, so that equal hashes mean equal tables.
 *
 * A file that is written to while it is read would get a table and a hash of different bytes: what
 * fstat says must be the same before and after.
 */
#include "reader_table.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "elf/elf_blake2b.h"
#include "symbol/symbol.h"

#define CHUNK_BYTES 65536U

struct input {
	int fd;
	const uint8_t *image; /* NULL: fd is read */
	uint64_t cpu_end_ns, read_left_ns;
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static int fd_read(int fd, uint64_t offset, uint8_t *out, size_t bytes)
{
	while (bytes) {
		ssize_t n = pread(fd, out, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EBADMSG;
		out += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Every window comes through here, so that no input, however made, takes more than its time. */
static int input_read(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	struct input *in = ctx;
	uint64_t began, took;
	int err;

	if (in->image) {
		memcpy(out, in->image + offset, bytes);
		return 0;
	}
	if (now_ns(CLOCK_PROCESS_CPUTIME_ID) > in->cpu_end_ns)
		return -ERANGE;
	began = now_ns(CLOCK_MONOTONIC);
	err = fd_read(in->fd, offset, out, bytes);
	took = now_ns(CLOCK_MONOTONIC) - began;
	if (!err && took > in->read_left_ns)
		return -EAGAIN;
	in->read_left_ns -= took;
	return err;
}

static void hash_number(struct elf_blake2b *hash, uint64_t number)
{
	elf_blake2b_add(hash, &number, sizeof(number));
}

static void hash_place(struct elf_blake2b *hash, const struct unwind_place *place,
		       const struct unwind_table *t)
{
	hash_number(hash, t->machine);
	hash_number(hash, t->found);
	hash_number(hash, t->info_address);
	for (uint32_t i = 0; i < place->range_count; i++) {
		hash_number(hash, place->ranges[i].start);
		hash_number(hash, place->ranges[i].end);
	}
}

static int hash_information(const struct unwind_source *source, const struct unwind_table *t,
			    uint8_t out[32], struct why *why)
{
	uint64_t left = t->info_bytes, offset = t->info_offset;
	struct unwind_place place;
	struct elf_blake2b hash;
	uint8_t *chunk;
	int err = unwind_locate(source, &place, why);

	if (err)
		return err;
	chunk = mem_alloc(MEM_HELPERS, CHUNK_BYTES);
	if (!chunk)
		return why_set(why, -ENOMEM, "out of memory");
	elf_blake2b_init(&hash);
	hash_place(&hash, &place, t);
	while (left && !err) {
		size_t bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;

		err = source->read(source->ctx, offset, chunk, bytes);
		elf_blake2b_add(&hash, chunk, bytes);
		offset += bytes;
		left -= bytes;
	}
	elf_blake2b_end(&hash, out);
	mem_free(MEM_HELPERS, chunk);
	return err ? why_set(why, err, "reading call frame information: %s", strerror(-err)) : 0;
}

static int make(const struct unwind_source *source, uint64_t bytes_max, struct unwind_table **ret,
		uint8_t hash[32], struct why *why)
{
	struct unwind_options options = {.table_bytes_max = (size_t)bytes_max};
	struct unwind_table *table;
	int err = unwind_table_build(source, &options, &table, why);

	if (err)
		return err;
	err = hash_information(source, table, hash, why);
	if (err)
		unwind_table_free(table);
	else
		*ret = table;
	return err;
}

static bool is_unchanged(int fd, const struct stat *before)
{
	struct stat now;

	return !fstat(fd, &now) && now.st_size == before->st_size &&
	       !memcmp(&now.st_mtim, &before->st_mtim, sizeof(now.st_mtim)) &&
	       !memcmp(&now.st_ctim, &before->st_ctim, sizeof(now.st_ctim));
}

int reader_table(int fd, const struct reader_table_limits *limits, struct unwind_table **ret,
		 uint8_t hash[32], struct why *why)
{
	struct input in = {.fd = fd, .read_left_ns = limits->read_ns};
	struct unwind_source source = {.read = input_read, .ctx = &in};
	struct unwind_table *table;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return why_set(why, -EBADMSG, "fstat: %s", strerror(errno));
	source.bytes = (uint64_t)st.st_size;
	in.cpu_end_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) + limits->cpu_ns;
	err = make(&source, limits->bytes, &table, hash, why);
	if (err)
		return err;
	if (!is_unchanged(fd, &st)) {
		unwind_table_free(table);
		return why_set(why, -EBADMSG, "the file was changed while it was read");
	}
	*ret = table;
	return 0;
}

int reader_vdso_table(uint64_t bytes_max, struct unwind_table **ret, uint8_t hash[32],
		      struct why *why)
{
	size_t bytes = 0;
	struct input in = {.image = symbol_vdso_image(&bytes)};
	struct unwind_source source = {.read = input_read, .ctx = &in, .bytes = bytes};

	if (!in.image)
		return why_set(why, -ENOENT, "this kernel gives no vDSO");
	return make(&source, bytes_max, ret, hash, why);
}
