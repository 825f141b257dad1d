// SPDX-License-Identifier: Apache-2.0
/* Perf records as bytes: right ones, damaged ones, and a ring made of ordinary memory. */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

struct record {
	uint8_t bytes[1024];
	size_t len;
};

static void put(struct record *r, const void *data, size_t bytes)
{
	memcpy(r->bytes + r->len, data, bytes);
	r->len += bytes;
}

static void put_u32(struct record *r, uint32_t value)
{
	put(r, &value, sizeof(value));
}

static void put_u64(struct record *r, uint64_t value)
{
	put(r, &value, sizeof(value));
}

static void put_text(struct record *r, const char *text)
{
	put(r, text, strlen(text) + 1);
	while (r->len % 8)
		r->bytes[r->len++] = 0;
}

static void begin(struct record *r, uint32_t type, uint16_t misc)
{
	struct perf_event_header header = {.type = type, .misc = misc};

	memset(r, 0, sizeof(*r));
	put(r, &header, sizeof(header));
}

/* The size field says what is there. */
static void fit(struct record *r)
{
	uint16_t size = (uint16_t)r->len;

	memcpy(r->bytes + offsetof(struct perf_event_header, size), &size, sizeof(size));
}

static void end(struct record *r, uint64_t time_ns)
{
	put_u32(r, 10);
	put_u32(r, 11);
	put_u64(r, time_ns);
	put_u32(r, 1);
	put_u32(r, 0);
	fit(r);
}

static void make_mmap(struct record *r, const char *path, bool has_build_id)
{
	begin(r, PERF_RECORD_MMAP2, has_build_id ? PERF_RECORD_MISC_MMAP_BUILD_ID : 0);
	put_u32(r, 100);
	put_u32(r, 101);
	put_u64(r, 0x1000);
	put_u64(r, 0x2000);
	put_u64(r, 0x3000);
	if (has_build_id) {
		put_u32(r, 20);
		put(r, "abcdefghijklmnopqrst", 20);
	} else {
		put_u32(r, 8);
		put_u32(r, 1);
		put_u64(r, 77);
		put_u64(r, 5);
	}
	put_u32(r, 5);
	put_u32(r, 2);
	put_text(r, path);
	end(r, 12345);
}

static int decode(const struct record *r, struct kernel_event *event, const char **text)
{
	/* An exact copy, so that a sanitizer sees a read past the end. */
	uint8_t *copy = malloc(r->len ? r->len : 1);
	int err;

	assert_non_null(copy);
	memcpy(copy, r->bytes, r->len);
	err = kernel_sideband_decode(copy, r->len, event, text);
	if (err > 0 && *text)
		*text = (const char *)r->bytes + ((const uint8_t *)*text - copy);
	free(copy);
	return err;
}

static void kernel_sideband__records__decode(void **state)
{
	struct kernel_event event;
	const char *text;
	struct record r;

	(void)state;
	make_mmap(&r, "/usr/bin/x", true);
	assert_int_equal(decode(&r, &event, &text), 1);
	assert_int_equal(event.type, KERNEL_EVENT_MMAP);
	assert_int_equal(event.time_ns, 12345);
	assert_int_equal(event.tgid, 100);
	assert_int_equal(event.tid, 101);
	assert_int_equal(event.mmap.start, 0x1000);
	assert_int_equal(event.mmap.bytes, 0x2000);
	assert_int_equal(event.mmap.pgoff, 0x3000);
	assert_int_equal(event.mmap.build_id_len, 20);
	assert_memory_equal(event.mmap.build_id, "abcdefghijklmnopqrst", 20);
	assert_string_equal(text, "/usr/bin/x");
	make_mmap(&r, "//anon", false);
	assert_int_equal(decode(&r, &event, &text), 1);
	assert_int_equal(event.mmap.build_id_len, 0);
	assert_int_equal(event.mmap.dev_major, 8);
	assert_int_equal(event.mmap.ino, 77);
	assert_int_equal(event.mmap.ino_generation, 5);

	begin(&r, PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
	put_u32(&r, 5);
	put_u32(&r, 6);
	put_text(&r, "bash");
	end(&r, 1);
	assert_int_equal(decode(&r, &event, &text), 1);
	assert_int_equal(event.type, KERNEL_EVENT_COMM);
	assert_true(event.comm.is_exec);
	assert_string_equal(text, "bash");

	begin(&r, PERF_RECORD_FORK, 0);
	put_u32(&r, 5);
	put_u32(&r, 4);
	put_u32(&r, 6);
	put_u32(&r, 4);
	put_u64(&r, 9);
	end(&r, 2);
	assert_int_equal(decode(&r, &event, &text), 1);
	assert_int_equal(event.type, KERNEL_EVENT_FORK);
	assert_int_equal(event.tgid, 5);
	assert_int_equal(event.tid, 6);
	assert_int_equal(event.fork.parent_tgid, 4);

	begin(&r, PERF_RECORD_LOST, 0);
	put_u64(&r, 1);
	put_u64(&r, 42);
	end(&r, 3);
	assert_int_equal(decode(&r, &event, &text), 1);
	assert_int_equal(event.type, KERNEL_EVENT_LOST);
	assert_int_equal(event.lost, 42);

	begin(&r, PERF_RECORD_KSYMBOL, 0);
	put_u64(&r, 0xffffffff81000000);
	put_u32(&r, 64);
	put_u32(&r, 1 | 1 << 16);
	put_text(&r, "bpf_prog_1");
	end(&r, 4);
	assert_int_equal(decode(&r, &event, &text), 1);
	assert_int_equal(event.type, KERNEL_EVENT_KSYMBOL);
	assert_true(event.ksymbol.is_gone);
	assert_int_equal(event.ksymbol.bytes, 64);

	/* as the second of two listeners gets it */
	put_u64(&r, 0x1111111111111111);
	put_u64(&r, 0x2222222222222222);
	put_u64(&r, 0x3333333333333333);
	fit(&r);
	assert_int_equal(decode(&r, &event, &text), 1);
	assert_string_equal(text, "bpf_prog_1");
	assert_int_equal(event.time_ns, 4);
	assert_int_equal(event.tgid, 10);

	begin(&r, PERF_RECORD_THROTTLE, 0);
	end(&r, 4);
	assert_int_equal(decode(&r, &event, &text), 0);
}

static void kernel_sideband__damage__is_refused(void **state)
{
	struct kernel_event event;
	const char *text;
	struct record r, whole;
	uint16_t size;

	(void)state;
	/* Every cut, with the size field as it was and made to fit. */
	make_mmap(&whole, "/usr/bin/x", true);
	for (size_t len = 0; len < whole.len; len++) {
		r = whole;
		r.len = len;
		assert_int_equal(decode(&r, &event, &text), -EBADMSG);
		size = (uint16_t)len;
		memcpy(r.bytes + 6, &size, sizeof(size));
		decode(&r, &event, &text);
	}
	/* A path that never ends. */
	r = whole;
	memset(r.bytes + 72, 'x', r.len - 72 - 24);
	assert_int_equal(decode(&r, &event, &text), -EBADMSG);
	/* A build-id longer than its field. */
	r = whole;
	r.bytes[40] = 21;
	assert_int_equal(decode(&r, &event, &text), -EBADMSG);
	/* Any byte may be anything. */
	for (size_t i = 0; i < whole.len; i++) {
		for (int value = 0; value < 256; value += 5) {
			r = whole;
			r.bytes[i] = (uint8_t)value;
			decode(&r, &event, &text);
		}
	}
}

struct heard {
	uint64_t maps, lost;
};

static void hear(void *ctx, const struct kernel_event *event, const char *text)
{
	struct heard *heard = ctx;

	if (event->type == KERNEL_EVENT_MMAP) {
		heard->maps++;
		assert_string_equal(text, "/usr/bin/x");
	} else if (event->type == KERNEL_EVENT_LOST) {
		heard->lost += event->lost;
	}
}

static void kernel_sideband__ring__wraps_and_survives_nonsense(void **state)
{
	enum { PAGE = 4096, DATA = 4096 };
	uint8_t *memory = aligned_alloc(PAGE, PAGE + DATA), *scratch = malloc(65536);
	struct perf_event_mmap_page *page = (void *)memory;
	struct kernel_sideband_cpu side = {
		.fd = -1, .map = memory, .map_bytes = PAGE + DATA, .data_bytes = DATA};
	struct heard heard = {0, 0};
	struct record r;
	uint64_t head = 0;

	(void)state;
	assert_non_null(memory);
	assert_non_null(scratch);
	memset(memory, 0, PAGE + DATA);
	make_mmap(&r, "/usr/bin/x", true);
	for (int round = 0; round < 500; round++) {
		for (size_t i = 0; i < r.len; i++)
			memory[PAGE + ((head + i) & (DATA - 1))] = r.bytes[i];
		head += r.len;
		page->data_head = head;
		if (round % 7 == 6)
			kernel_sideband_drain(&side, scratch, hear, &heard);
	}
	kernel_sideband_drain(&side, scratch, hear, &heard);
	assert_int_equal(heard.maps, 500);
	assert_int_equal(page->data_tail, head);
	/* A record of size 0 would be read for ever; one too long, past the head. */
	for (int i = 0; i < 2; i++) {
		memset(memory + PAGE, i ? 0xff : 0, DATA);
		head += 256;
		page->data_head = head;
		kernel_sideband_drain(&side, scratch, hear, &heard);
		assert_int_equal(heard.lost, i + 1);
		assert_int_equal(page->data_tail, head);
	}
	free(memory);
	free(scratch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_sideband__records__decode),
		cmocka_unit_test(kernel_sideband__damage__is_refused),
		cmocka_unit_test(kernel_sideband__ring__wraps_and_survives_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
