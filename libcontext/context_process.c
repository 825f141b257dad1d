// SPDX-License-Identifier: Apache-2.0
/*
 * The process context of OTEP 4719: one mapping that profilers find by its name, with a pointer to
 * a protobuf message (opentelemetry.proto.processcontext.v1development.ProcessContext). The few
 * fields are written here, so that a service needs no protobuf library.
 */
#include "flyball/context.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA	     0x53564d41 /* Linux 5.17 */
#define PR_SET_VMA_ANON_NAME 0
#endif

#define NAME		  "OTEL_CTX"
#define PAYLOAD_BYTES_MAX 65536 /* what readers take (OTEP 4719's reference reader) */
#define KEYS_MAX	  256	/* one byte names a key in the threads' records */
/* The layout of the thread records, as every writer known calls it. */
#define SCHEMA "tlsdesc_v1_dev"

struct header {
	char signature[8];
	uint32_t version;
	uint32_t payload_bytes;
	_Atomic uint64_t published_ns; /* CLOCK_BOOTTIME; 0: being written */
	const uint8_t *payload;
};
_Static_assert(sizeof(struct header) == 32, "OTEP 4719");

/*
 * Lies in memory that fork wipes: a child begins with nothing published and with no lock that a
 * thread it does not have would hold.
 */
static struct published {
	atomic_flag locked;
	struct header *header;
	uint8_t *payload;
} *published;
static pthread_once_t published_once = PTHREAD_ONCE_INIT;

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/*
 * A protobuf message, written from its end: the length of a field is known when its head is
 * written. at counts on below zero when the room is full, so that encode() looks once.
 */
struct message {
	uint8_t *bytes;
	ptrdiff_t at;
};

static void put(struct message *message, const void *bytes, size_t length)
{
	message->at -= (ptrdiff_t)length;
	if (message->at >= 0)
		memcpy(message->bytes + message->at, bytes, length);
}

static void put_varint(struct message *message, size_t value)
{
	uint8_t bytes[10];
	size_t length = 0;

	do {
		bytes[length++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value);
	put(message, bytes, length);
}

/* The head of a field whose content ends before end. All our fields have numbers below 16. */
static void put_head(struct message *message, unsigned int number, ptrdiff_t end)
{
	put_varint(message, (size_t)(end - message->at));
	put_varint(message, number << 3 | 2);
}

/* AnyValue { string_value = 1 } as the field number of what is being written. */
static void put_value(struct message *message, unsigned int number, const char *text)
{
	ptrdiff_t end = message->at;

	put(message, text, strlen(text));
	put_head(message, 1, end);
	put_head(message, number, end);
}

/* KeyValue { key = 1, value = 2 }; the value was written since end. */
static void put_key(struct message *message, unsigned int number, const char *key, ptrdiff_t end)
{
	ptrdiff_t key_end = message->at;

	put(message, key, strlen(key));
	put_head(message, 1, key_end);
	put_head(message, number, end);
}

static void put_attribute(struct message *message, unsigned int number, const char *key,
			  const char *value)
{
	ptrdiff_t end = message->at;

	put_value(message, 2, value);
	put_key(message, number, key, end);
}

/*
 * ProcessContext { resource = 1 { attributes = 1 }, attributes = 2 }; the threads' keys are an
 * AnyValue { array_value = 5 { values = 1 } }.
 */
static int encode(struct message *message, const struct flyball_process_context *context)
{
	ptrdiff_t end;

	if (context->thread_key_count > KEYS_MAX)
		return -EINVAL;
	message->at = PAYLOAD_BYTES_MAX;
	message->bytes = malloc(PAYLOAD_BYTES_MAX);
	if (!message->bytes)
		return -ENOMEM;
	end = message->at;
	for (size_t i = context->thread_key_count; i-- > 0;)
		put_value(message, 1, context->thread_keys[i]);
	put_head(message, 5, end);
	put_head(message, 2, end);
	put_key(message, 2, "threadlocal.attribute_key_map", end);
	put_attribute(message, 2, "threadlocal.schema_version", SCHEMA);
	end = message->at;
	for (size_t i = context->resource_count; i-- > 0;)
		put_attribute(message, 1, context->resource[i].key, context->resource[i].value);
	put_head(message, 1, end);
	if (message->at >= 0)
		return 0;
	free(message->bytes);
	return -E2BIG;
}

static bool name_mapping(void *mapping, size_t bytes)
{
	return !prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, mapping, bytes, NAME);
}

/* A private mapping of a memfd, whose name shows where the kernel has no names for mappings. */
static void *map_memfd(size_t bytes)
{
	int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	void *mapping = MAP_FAILED;

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return MAP_FAILED;
	if (!ftruncate(fd, (off_t)bytes))
		mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	return mapping;
}

/* What readers would find, and children would not inherit; else NULL. */
static struct header *map_header(size_t bytes)
{
	void *mapping = map_memfd(bytes);
	bool found = mapping != MAP_FAILED;

	if (!found)
		mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);
	if (mapping == MAP_FAILED)
		return NULL;
	found |= name_mapping(mapping, bytes);
	if (found && !madvise(mapping, bytes, MADV_DONTFORK))
		return mapping;
	munmap(mapping, bytes);
	return NULL;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void write_header(struct header *header, const struct message *message)
{
	uint64_t before = atomic_load(&header->published_ns);
	uint64_t now = now_ns();

	atomic_store(&header->published_ns, 0);
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(header->signature, NAME, sizeof(header->signature));
	header->version = 2;
	header->payload_bytes = (uint32_t)(PAYLOAD_BYTES_MAX - message->at);
	header->payload = message->bytes + message->at;
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store(&header->published_ns, now > before ? now : before + 1);
}

static void map_published(void)
{
	size_t bytes = page_bytes();
	void *wiped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (wiped == MAP_FAILED)
		return;
	if (madvise(wiped, bytes, MADV_WIPEONFORK))
		munmap(wiped, bytes);
	else
		published = wiped;
}

static bool lock(void)
{
	pthread_once(&published_once, map_published);
	if (!published)
		return false;
	while (atomic_flag_test_and_set(&published->locked))
		sched_yield();
	return true;
}

int flyball_process_context_publish(const struct flyball_process_context *context)
{
	struct message message;
	struct header *header;
	int err = encode(&message, context);

	if (err)
		return err;
	if (!lock()) {
		free(message.bytes);
		return -ENOMEM;
	}
	header = published->header ? published->header : map_header(page_bytes());
	if (header) {
		write_header(header, &message);
		name_mapping(header,
			     page_bytes()); /* says that it changed; for that, named again */
		free(published->payload);
		published->header = header;
		published->payload = message.bytes;
	} else {
		free(message.bytes);
		err = -ENOMEM;
	}
	atomic_flag_clear(&published->locked);
	return err;
}

void flyball_process_context_withdraw(void)
{
	if (!lock())
		return;
	if (published->header)
		munmap(published->header, page_bytes());
	free(published->payload);
	published->payload = NULL;
	published->header = NULL;
	atomic_flag_clear(&published->locked);
}
