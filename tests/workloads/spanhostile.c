// SPDX-License-Identifier: Apache-2.0
/*
 * spanhostile MODE MILLISECONDS: publishes a process and a thread context by hand, wrong in one
 * way, and burns. Nothing here is of libflyball-context.
 */
#include <elf.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE	  4096
#define LIBRARIES 10000

struct record {
	uint8_t trace_id[16], span_id[8], valid, flags;
	uint16_t attributes_bytes;
	uint8_t attributes[65536];
};

struct header {
	char signature[8];
	uint32_t version, payload_bytes;
	uint64_t published_ns;
	const void *payload;
};

_Thread_local struct record *otel_thread_ctx_v1;
extern char __ehdr_start[];
static uint64_t end_ns;
static struct header *header;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

/* The least that says "threads publish": {threadlocal.schema_version: tls_v1}, and two names. */
static const char payload[] = "\x12\x26\x0a\x1a"
			      "threadlocal.schema_version"
			      "\x12\x08\x0a\x06tls_v1"
			      "\x12\x2d\x0a\x1dthreadlocal.attribute_key_map"
			      "\x12\x0c\x2a\x0a\x0a\x03\x0a\x01"
			      "a"
			      "\x0a\x03\x0a\x01"
			      "b";

static void publish(const void *bytes, uint32_t count)
{
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, PAGE))
		abort();
	header = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (header == MAP_FAILED)
		abort();
	close(fd);
	memcpy(header->signature, "OTEL_CTX", 8);
	header->version = 2;
	header->payload_bytes = count;
	header->payload = bytes;
	header->published_ns = 1;
}

/* A record at the end of its page, with nothing behind it. */
static struct record *at_an_edge(size_t bytes)
{
	char *pages = map(2 * PAGE);

	if (mprotect(pages + PAGE, PAGE, PROT_NONE))
		abort();
	return (struct record *)(pages + PAGE - bytes);
}

static void add(struct record *r, uint8_t key, const char *value, size_t bytes)
{
	uint8_t *to = r->attributes + r->attributes_bytes;

	to[0] = key;
	to[1] = (uint8_t)bytes;
	memcpy(to + 2, value, bytes);
	r->attributes_bytes = (uint16_t)(r->attributes_bytes + 2 + bytes);
}

static struct record *spoil_record(struct record *r, const char *mode)
{
	if (!strcmp(mode, "unmapped"))
		return (struct record *)(uintptr_t)0x10000;
	if (!strcmp(mode, "kernel"))
		return (struct record *)(uintptr_t)0xffffffff81000000;
	if (!strcmp(mode, "noncanonical"))
		return (struct record *)(uintptr_t)0x8000000000000000;
	if (!strcmp(mode, "invalid"))
		r->valid = 0xff;
	if (!strcmp(mode, "edge")) {
		r = at_an_edge(28);
		memset(r, 1, 28);
	}
	if (!strcmp(mode, "huge"))
		r->attributes_bytes = UINT16_MAX;
	if (!strcmp(mode, "malformed")) {
		add(r, 0, "good", 4);
		r->attributes[r->attributes_bytes + 1] = 200;
		r->attributes_bytes = (uint16_t)(r->attributes_bytes + 2);
	}
	if (!strcmp(mode, "dirty"))
		add(r, 0, "\xff\n", 2);
	if (!strcmp(mode, "twice")) {
		add(r, 1, "one", 3);
		add(r, 1, "two", 3);
	}
	for (int i = 0; !strcmp(mode, "many") && i < 65; i++)
		add(r, (uint8_t)i, "x", 1);
	if (!strcmp(mode, "unnamed"))
		add(r, 200, "x", 1);
	return r;
}

/* What the reader takes for the program's header. */
static void spoil_program(const char *mode)
{
	char *start = __ehdr_start;
	const Elf64_Ehdr *ehdr = (const Elf64_Ehdr *)start;
	Elf64_Phdr *headers = (Elf64_Phdr *)(start + ehdr->e_phoff);
	bool is_offset = !strcmp(mode, "offset");

	if (!is_offset && strcmp(mode, "libraries") != 0)
		return;
	if (mprotect(start, PAGE, PROT_READ | PROT_WRITE))
		abort();
	for (int i = 0; i < ehdr->e_phnum; i++) {
		if (headers[i].p_type != PT_TLS)
			continue;
		if (is_offset)
			headers[i].p_memsz = 1ULL << 60;
		else
			headers[i].p_type = PT_NULL;
	}
	for (int i = 0; !is_offset && i < LIBRARIES; i++) {
		int fd = memfd_create("library", 0);

		if (fd < 0 || write(fd, start, PAGE) != PAGE ||
		    mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			abort();
		close(fd);
	}
}

static void publish_by(const char *mode)
{
	if (!strcmp(mode, "keymap")) {
		publish(map(1U << 30), 1U << 30);
	} else if (!strcmp(mode, "nowhere")) {
		publish((const void *)(uintptr_t)0x10000, 100);
	} else if (!strcmp(mode, "noise")) {
		publish(memset(map(PAGE), 0xff, PAGE), PAGE);
	} else if (!strcmp(mode, "stalled")) {
		struct uffdio_api api = {.api = UFFD_API};
		struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
		int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

		range.range.start = (uintptr_t)map(PAGE);
		range.range.len = PAGE;
		if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
			abort();
		publish((const void *)(uintptr_t)range.range.start, 100);
	} else {
		publish(payload, sizeof(payload) - 1);
	}
}

/* Rewrites what others read, all the time. */
static void *change(void *ctx)
{
	struct record *volatile record = ctx;
	unsigned int seed = 1;

	while (now_ns() < end_ns) {
		for (size_t i = 0; i < 700; i++)
			((volatile uint8_t *)record)[i] = (uint8_t)rand_r(&seed);
		record->valid = 1;
		header->published_ns++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *mode = argc == 3 ? argv[1] : "";
	struct record *record = map(sizeof(*record));
	pthread_t changer;

	if (!mode[0])
		return 2;
	end_ns = now_ns() + (uint64_t)atoi(argv[2]) * 1000000u;
	memset(record, 1, 28);
	record->attributes_bytes = 0;
	record = spoil_record(record, mode);
	spoil_program(mode);
	publish_by(mode);
	otel_thread_ctx_v1 = record;
	if (!strcmp(mode, "changing") && pthread_create(&changer, NULL, change, record))
		return 3;
	puts("published");
	fflush(stdout);
	while (now_ns() < end_ns)
		;
	return 0;
}
