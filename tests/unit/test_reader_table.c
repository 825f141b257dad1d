// SPDX-License-Identifier: Apache-2.0
/* Tables of files that are slow, huge, or changed while they are read. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "helpers/reader_table.h"
#include "unwind_image.h"

static const struct reader_table_limits ample = {1 << 20, UINT64_MAX >> 1, UINT64_MAX >> 1};

/* A file with functions functions, its information at the end of a segment without a size. */
static int file_make(uint32_t functions, unsigned int shift)
{
	int fd = memfd_create("table", MFD_CLOEXEC);
	struct image im;

	assert_true(fd >= 0);
	image_init(&im, EM_X86_64, 0x10000);
	image_cie_x86(&im);
	for (uint32_t i = 0; i < functions; i++) {
		image_fde(&im, IMAGE_TEXT + i * 0x20, 0x20);
		CODE(&im, "\x41\x0e\x10\x4a\x0e\x08");
		im.bytes[im.len - 5] = (uint8_t)(0x10 + shift);
		image_end(&im);
	}
	image_close(&im);
	assert_int_equal(write(fd, im.bytes, im.len), im.len);
	image_free(&im);
	return fd;
}

static int table_of(int fd, const struct reader_table_limits *limits, uint8_t hash[32])
{
	struct unwind_table *table = NULL;
	int err = reader_table(fd, limits, &table, hash, NULL);

	if (!err)
		assert_int_equal(unwind_table_check(table, NULL), 0);
	unwind_table_free(table);
	return err;
}

static void reader_table__other_information__has_another_hash(void **state)
{
	int a = file_make(100, 0), b = file_make(100, 8), c = file_make(101, 0),
	    d = file_make(100, 0);
	uint8_t ha[32], hb[32], hc[32], hd[32];

	(void)state;
	assert_int_equal(table_of(a, &ample, ha), 0);
	assert_int_equal(table_of(b, &ample, hb), 0);
	assert_int_equal(table_of(c, &ample, hc), 0);
	assert_int_equal(table_of(d, &ample, hd), 0);
	assert_memory_not_equal(ha, hb, sizeof(ha));
	assert_memory_not_equal(ha, hc, sizeof(ha));
	assert_memory_equal(ha, hd, sizeof(ha));
	close(a);
	close(b);
	close(c);
	close(d);
	assert_int_equal(mem_live_bytes(MEM_ELF) + mem_live_bytes(MEM_HELPERS), 0);
}

/* The same functions elsewhere: the bytes of the information are equal, their meaning is not. */
static void reader_table__other_addresses__have_another_hash(void **state)
{
	int fd = file_make(100, 0);
	uint8_t before[32], after[32];
	Elf64_Phdr p[3];

	(void)state;
	assert_int_equal(table_of(fd, &ample, before), 0);
	assert_int_equal(pread(fd, p, sizeof(p), sizeof(Elf64_Ehdr)), sizeof(p));
	for (size_t i = 0; i < 3; i++)
		p[i].p_vaddr += 0x10000;
	assert_int_equal(pwrite(fd, p, sizeof(p), sizeof(Elf64_Ehdr)), sizeof(p));
	assert_int_equal(table_of(fd, &ample, after), 0);
	assert_memory_not_equal(before, after, sizeof(before));
	close(fd);
}

static void reader_table__past_its_time__is_given_up(void **state)
{
	struct reader_table_limits no_cpu = ample, no_read = ample, no_room = ample;
	int fd = file_make(100, 0);
	uint8_t hash[32];

	(void)state;
	no_cpu.cpu_ns = 0;
	no_read.read_ns = 0;
	no_room.bytes = 64;
	assert_int_equal(table_of(fd, &no_cpu, hash), -ERANGE);
	assert_int_equal(table_of(fd, &no_read, hash), -EAGAIN);
	assert_int_equal(table_of(fd, &no_room, hash), -ENOSPC);
	assert_int_equal(mem_live_bytes(MEM_ELF) + mem_live_bytes(MEM_HELPERS), 0);
	close(fd);
}

/* A segment of 2 TiB without a section to say where in it the information ends. */
static void reader_table__a_huge_file__costs_what_its_information_does(void **state)
{
	int fd = file_make(100, 0);
	uint8_t small[32], huge[32];
	struct reader_table_limits brief = ample;
	Elf64_Phdr p[3];

	(void)state;
	assert_int_equal(table_of(fd, &ample, small), 0);
	assert_int_equal(pread(fd, p, sizeof(p), sizeof(Elf64_Ehdr)), sizeof(p));
	p[1].p_filesz = 1ULL << 41;
	assert_int_equal(pwrite(fd, p, sizeof(p), sizeof(Elf64_Ehdr)), sizeof(p));
	assert_int_equal(ftruncate(fd, 1LL << 41), 0);
	brief.cpu_ns = 100000000;
	assert_int_equal(table_of(fd, &brief, huge), 0);
	assert_memory_equal(small, huge, sizeof(small));
	close(fd);
}

struct changer {
	int fd;
	atomic_bool is_ending;
	atomic_uint rounds;
	off_t bytes; /* 0: only its time */
};

static void *change(void *ctx)
{
	struct changer *c = ctx;

	while (!atomic_load(&c->is_ending)) {
		unsigned int n = atomic_fetch_add(&c->rounds, 1) + 1;
		const struct timespec times[2] = {{n, 0}, {n, 0}};

		if (c->bytes)
			assert_int_equal(ftruncate(c->fd, n & 1 ? c->bytes / 2 : c->bytes), 0);
		assert_int_equal(futimens(c->fd, times), 0);
	}
	return NULL;
}

/* Until it has been noticed once; what is not noticed must be a good table or an error. */
static void change_while_read(off_t bytes)
{
	struct changer c = {.fd = file_make(1000, 0), .bytes = bytes};
	uint64_t end = clock_monotonic_ns() + 20000000000ULL;
	bool is_noticed = false;
	pthread_t thread;
	uint8_t hash[32];

	assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
	while (!is_noticed && clock_monotonic_ns() < end) {
		int err = table_of(c.fd, &ample, hash);

		assert_true(!err || err == -EBADMSG || err == -ENOENT);
		is_noticed = err == -EBADMSG;
	}
	atomic_store(&c.is_ending, true);
	pthread_join(thread, NULL);
	assert_true(is_noticed);
	close(c.fd);
	assert_int_equal(mem_live_bytes(MEM_ELF) + mem_live_bytes(MEM_HELPERS), 0);
}

static void reader_table__a_file_written_to__is_refused(void **state)
{
	(void)state;
	change_while_read(0);
}

static void reader_table__a_file_cut_and_grown__is_refused(void **state)
{
	(void)state;
	change_while_read(30000);
}

static void reader_table__the_vdso__has_one(void **state)
{
	struct unwind_table *table = NULL;
	uint8_t hash[32];

	(void)state;
	assert_int_equal(reader_vdso_table(1 << 20, &table, hash, NULL), 0);
	assert_true(table->stats.fdes > 3);
	unwind_table_free(table);
	assert_int_equal(reader_vdso_table(64, &table, hash, NULL), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reader_table__other_information__has_another_hash),
		cmocka_unit_test(reader_table__other_addresses__have_another_hash),
		cmocka_unit_test(reader_table__past_its_time__is_given_up),
		cmocka_unit_test(reader_table__a_huge_file__costs_what_its_information_does),
		cmocka_unit_test(reader_table__a_file_written_to__is_refused),
		cmocka_unit_test(reader_table__a_file_cut_and_grown__is_refused),
		cmocka_unit_test(reader_table__the_vdso__has_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
