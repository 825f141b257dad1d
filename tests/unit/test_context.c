// SPDX-License-Identifier: Apache-2.0
/*
 * Finding the thread context in our own memory, in each way a program or library may reach it, with
 * the compiler's answer as the judge; and reading process contexts, good and bad.
 */
#include "context/context.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cmocka.h>

const void *context_variant_address(void); /* in this program */

static bool read_own(void *ctx, uint64_t address, void *out, size_t bytes)
{
	struct iovec here = {out, bytes}, there = {(void *)(uintptr_t)address, bytes};

	(void)ctx;
	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)bytes;
}

static const struct context_memory own = {NULL, read_own};

/* Follows a place as the kernel side does, from this thread's TP (x86-64, glibc). */
static const void *follow(const struct context_place *place)
{
	const char *tp;
	const struct {
		const char *value;
		void *to_free;
	} *dtv;

	__asm__("mov %%fs:0, %0" : "=r"(tp));
	if (!place->module)
		return tp + place->offset;
	memcpy(&dtv, tp + 8, sizeof(dtv));
	return dtv[place->module].value + place->offset;
}

static uint64_t start_of(const void *code)
{
	Dl_info info;

	assert_int_not_equal(dladdr(code, &info), 0);
	return (uint64_t)(uintptr_t)info.dli_fbase;
}

static void *open_variant(const char *name)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	size_t length;
	void *library;

	assert_true(n > 0);
	path[n] = 0;
	length = strlen(dirname(path));
	snprintf(path + length, sizeof(path) - length, "/../src/context/libcontext-%s.so", name);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		print_message("%s\n", dlerror());
	assert_non_null(library);
	return library;
}

static void find__a_library__is_where_the_compiler_says(void **state)
{
	static const char *const names[] = {"desc",    "desc-large",	"desc-bound",
					    "general", "general-bound", "general-sysv",
					    "initial", "aligned"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		void *library = open_variant(names[i]);
		const void *(*address)(void) =
			(const void *(*)(void))dlsym(library, "context_variant_address");
		struct context_module module = {start_of((const void *)address), false, -1};
		struct context_place place;
		struct why why = {""};
		const void *expected = address(); /* and it is there from now on */
		int err = context_find(&own, &module, &place, &why);

		if (err || follow(&place) != expected)
			print_message("%s: %d %s\n", names[i], err, why.text);
		assert_int_equal(err, 0);
		assert_ptr_equal(follow(&place), expected);
	}
}

static void find__a_library_that_nothing_refers_to__is_said_so(void **state)
{
	void *library = open_variant("alone");
	struct context_module module = {start_of(dlsym(library, "context_variant_address")), false,
					-1};
	struct context_place place;
	struct why why;

	(void)state;
	assert_int_equal(context_find(&own, &module, &place, &why), -EOPNOTSUPP);
}

static void find__the_program__needs_no_relocation(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct context_module module = {start_of((const void *)context_variant_address), true, fd};
	struct context_place place;
	struct why why;

	(void)state;
	assert_int_equal(context_find(&own, &module, &place, &why), 0);
	assert_ptr_equal(follow(&place), context_variant_address());
	module.fd = -1; /* it does not export the symbol */
	assert_int_equal(context_find(&own, &module, &place, &why), -ENOENT);
	close(fd);
}

static void find__what_is_no_module__is_refused(void **state)
{
	static char page[8192] __attribute__((aligned(4096)));
	struct context_module module = {(uint64_t)(uintptr_t)page, false, -1};
	struct context_place place;
	Elf64_Ehdr *e = (Elf64_Ehdr *)page;
	struct why why;

	(void)state;
	assert_int_equal(context_find(&own, &module, &place, &why), -ENOENT);
	module.start = getauxval(AT_SYSINFO_EHDR); /* the vDSO has no TLS */
	assert_int_equal(context_find(&own, &module, &place, &why), -ENOENT);
	module.start = (uint64_t)(uintptr_t)page;
	memcpy(e->e_ident, ELFMAG "\2\1\1", 7);
	e->e_machine = EM_X86_64;
	e->e_phentsize = sizeof(Elf64_Phdr);
	e->e_phnum = 3;
	e->e_phoff = 1ULL << 46;
	assert_int_equal(context_find(&own, &module, &place, &why), -EBADMSG);
	e->e_phnum = 65535;
	assert_int_equal(context_find(&own, &module, &place, &why), -ENOENT);
}

/* By the psABIs; the alignment is what one finds left out elsewhere. */
static void find__local_exec__rounds_by_the_alignment(void **state)
{
	(void)state;
	assert_int_equal(context_local_exec(EM_X86_64, 0, 0, 8, 8), -8);
	assert_int_equal(context_local_exec(EM_X86_64, 0, 0x1000, 8, 4096), -4096);
	assert_int_equal(context_local_exec(EM_X86_64, 16, 0x40, 24, 64), -48);
	assert_int_equal(context_local_exec(EM_X86_64, 0, 0x3de8, 16, 16), -24);
	assert_int_equal(context_local_exec(EM_AARCH64, 0, 0, 8, 8), 16);
	assert_int_equal(context_local_exec(EM_AARCH64, 8, 0x1000, 16, 64), 64 + 8);
	assert_int_equal(context_local_exec(EM_AARCH64, 0, 0x1010, 16, 64), 16);
}

/* ---------------------------------------------------------------- process context */
struct published {
	char signature[8];
	uint32_t version, bytes;
	uint64_t published_ns;
	const void *payload;
};

static int read_payload(const void *payload, size_t bytes, struct context_process *ret)
{
	struct published header = {"OTEL_CTX", 2, (uint32_t)bytes, 1, payload};
	struct why why;

	return context_process_read(&own, (uint64_t)(uintptr_t)&header, ret, &why);
}

static void assert_text(const struct context_text *text, const char *expected)
{
	assert_int_equal(text->length, strlen(expected));
	assert_memory_equal(text->bytes, expected, text->length);
}

/* Resource { service.name = "a" }, threadlocal.schema_version, threadlocal.attribute_key_map. */
static const char good[] =
	"\x0a\x15\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01"
	"a"
	"\x12\x2e\x0a\x1athreadlocal.schema_version\x12\x10\x0a\x0etlsdesc_v1_dev"
	"\x12\x2a\x0a\x1dthreadlocal.attribute_key_map\x12\x09\x2a\x07\x0a\x05\x0a"
	"\x03key";

static void process__what_is_published__is_read(void **state)
{
	struct context_process *process = calloc(1, sizeof(*process));

	(void)state;
	assert_int_equal(read_payload(good, sizeof(good) - 1, process), 0);
	assert_true(process->has_threads);
	assert_int_equal(process->published_ns, 1);
	assert_int_equal(process->attribute_count, 1);
	assert_text(&process->attributes[0].key, "service.name");
	assert_text(&process->attributes[0].value, "a");
	assert_int_equal(process->key_count, 1);
	assert_text(&process->keys[0], "key");
	free(process);
}

static void process__each_cut_and_each_changed_byte__is_no_harm(void **state)
{
	struct context_process *process = calloc(1, sizeof(*process));
	char *copy = malloc(sizeof(good) - 1); /* ends where AddressSanitizer sees it */

	(void)state;
	for (size_t n = 1; n < sizeof(good) - 1; n++) {
		char *cut = malloc(n);

		memcpy(cut, good, n);
		read_payload(cut, n, process);
		free(cut);
	}
	for (size_t i = 0; i < sizeof(good) - 1; i++)
		for (int v = 0; v < 256; v++) {
			memcpy(copy, good, sizeof(good) - 1);
			copy[i] = (char)v;
			read_payload(copy, sizeof(good) - 1, process);
		}
	free(copy);
	free(process);
}

static void process__what_is_none__is_refused(void **state)
{
	struct published header = {"OTEL_CTX", 2, 70000, 1, good};
	struct context_process *process = calloc(1, sizeof(*process));
	uint64_t at = (uint64_t)(uintptr_t)&header;
	struct why why;

	(void)state;
	assert_int_equal(context_process_read(&own, at, process, &why), -EBADMSG);
	header.bytes = sizeof(good) - 1;
	header.published_ns = 0;
	assert_int_equal(context_process_read(&own, at, process, &why), -EAGAIN);
	header.published_ns = 1;
	header.payload = (const void *)8;
	assert_int_equal(context_process_read(&own, at, process, &why), -EBADMSG);
	header.version = 1;
	assert_int_equal(context_process_read(&own, at, process, &why), -ENOENT);
	header.signature[0] = 'X';
	assert_int_equal(context_process_read(&own, at, process, &why), -ENOENT);
	assert_int_equal(context_process_read(&own, 8, process, &why), -EBADMSG);
	free(process);
}

static void process__more_than_is_kept__is_left_out(void **state)
{
	static const char one[] = "\x0a\x0a\x0a\x01k\x12\x05\x0a\x03val";
	enum { MANY = 300, ONE = sizeof(one) - 1 };
	struct context_process *process = calloc(1, sizeof(*process));
	char payload[4 + MANY * ONE] = {0x0a};

	(void)state;
	payload[1] = (char)(0x80 | (MANY * ONE & 0x7f));
	payload[2] = (char)(MANY * ONE >> 7);
	for (size_t i = 0; i < MANY; i++)
		memcpy(payload + 3 + i * ONE, one, ONE);
	assert_int_equal(read_payload(payload, 3 + MANY * ONE, process), 0);
	assert_int_equal(process->attribute_count, CONTEXT_ATTRIBUTES_MAX);
	free(process);
}

static void process__mappings__are_known_by_their_names(void **state)
{
	(void)state;
	assert_true(context_is_mapping("[anon:OTEL_CTX]"));
	assert_true(context_is_mapping("[anon_shmem:OTEL_CTX]"));
	assert_true(context_is_mapping("/memfd:OTEL_CTX (deleted)"));
	assert_false(context_is_mapping("/tmp/OTEL_CTX"));
	assert_false(context_is_mapping(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(find__a_library__is_where_the_compiler_says),
		cmocka_unit_test(find__a_library_that_nothing_refers_to__is_said_so),
		cmocka_unit_test(find__the_program__needs_no_relocation),
		cmocka_unit_test(find__what_is_no_module__is_refused),
		cmocka_unit_test(find__local_exec__rounds_by_the_alignment),
		cmocka_unit_test(process__what_is_published__is_read),
		cmocka_unit_test(process__each_cut_and_each_changed_byte__is_no_harm),
		cmocka_unit_test(process__what_is_none__is_refused),
		cmocka_unit_test(process__more_than_is_kept__is_left_out),
		cmocka_unit_test(process__mappings__are_known_by_their_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
