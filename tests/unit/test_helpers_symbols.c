// SPDX-License-Identifier: Apache-2.0
/*
 * Symbol files with the real helper processes: made once, used by those that come later, remade
 * when they are damaged, and good for a program that is gone. The program that is named is a copy
 * of this one. HELPERS_DIR is set by the build.
 */
#include "abi/reasons.h"
#include "helpers/helpers_wire.h"
#include "symbol/symbol_packed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define DEADLINE_MS 1000
#define ADDRESSES   3

extern const char __executable_start[];

int named_function(int x);
__attribute__((noinline)) int named_function(int x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

static struct helpers *helpers;
static char dir[64], cache[80], program[80], other[80];
static struct helpers_file file;
static struct elf_info info;

struct outcome {
	int calls, err;
	uint32_t unnamed;
	size_t named;
	char name[64];
	struct elf_info info;
	bool is_stripped;
};

static void on_done(void *ctx, const struct helpers_result *r)
{
	struct outcome *o = ctx;

	o->calls++;
	o->err = r->err;
	o->unnamed = r->unnamed;
	o->is_stripped = r->is_stripped;
	if (r->info)
		o->info = *r->info;
	for (size_t i = 0; i < r->name_count; i++) {
		o->named += !r->names[i].unnamed;
		if (!r->names[i].unnamed && !o->name[0])
			snprintf(o->name, sizeof(o->name), "%s", r->names[i].name);
	}
}

static void wait_for(const struct outcome *o)
{
	uint64_t end = clock_monotonic_ns() + 20000000000ULL;

	while (!o->calls) {
		struct pollfd p = {.fd = helpers_fd(helpers), .events = POLLIN};

		assert_true(clock_monotonic_ns() < end);
		poll(&p, 1, 50);
		helpers_poll(helpers);
	}
	assert_int_equal(o->calls, 1);
}

static void start(uint64_t bytes_max)
{
	struct helpers_options options = {.directory = HELPERS_DIR, .deadline_ms = DEADLINE_MS};
	struct why why = {""};

	if (helpers_start(&options, &helpers, &why) ||
	    helpers_symbols_start(helpers, cache, bytes_max, &why))
		fail_msg("%s", why.text);
}

static void restart(void)
{
	helpers_stop(helpers);
	start(0);
}

static void copy_self(const char *to)
{
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	char bytes[65536];
	ssize_t n;

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, bytes, sizeof(bytes))) > 0)
		assert_int_equal(write(out, bytes, (size_t)n), n);
	close(in);
	close(out);
}

static void look(const char *path)
{
	struct elf_file *elf;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(elf_open(fd, &elf, NULL), 0);
	assert_int_equal(fstat(fd, &st), 0);
	info = *elf_get_info(elf);
	file.path = path;
	file.ino = st.st_ino;
	file.build_id_len = info.build_id_len;
	memcpy(file.build_id, info.build_id, info.build_id_len);
	elf_close(elf);
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/test_symbols.XXXXXX");
	assert_non_null(mkdtemp(dir));
	chmod(dir, 0755);
	snprintf(cache, sizeof(cache), "%s/cache", dir);
	snprintf(program, sizeof(program), "%s/program", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	copy_self(program);
	file = (struct helpers_file){.key = 1, .tgid = (uint32_t)getpid()};
	look(program);
	start(0);
	return 0;
}

/* Visits the names in the cache; the last one stays in *ret. */
static size_t cached(char ret[256])
{
	DIR *d = opendir(cache);
	struct dirent *e;
	size_t count = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		count++;
		if (ret)
			snprintf(ret, 256, "%s", e->d_name);
	}
	closedir(d);
	return count;
}

static int teardown(void **state)
{
	char name[256], path[512];

	(void)state;
	helpers_stop(helpers);
	helpers = NULL;
	while (cached(name)) {
		snprintf(path, sizeof(path), "%s/%s", cache, name);
		assert_int_equal(unlink(path), 0);
	}
	rmdir(cache);
	unlink(program);
	unlink(other);
	rmdir(dir);
	assert_int_equal(mem_live_bytes(MEM_HELPERS), 0);
	return 0;
}

static uint64_t address(void)
{
	return (uint64_t)(uintptr_t)named_function - (uint64_t)(uintptr_t)__executable_start;
}

static void names_of(struct outcome *o)
{
	uint64_t vaddrs[ADDRESSES] = {address(), address() + 1, 1};

	memset(o, 0, sizeof(*o));
	assert_int_equal(helpers_names(helpers, &file, vaddrs, ADDRESSES, on_done, o), 0);
	wait_for(o);
}

static void expect_named(void)
{
	struct outcome o;

	names_of(&o);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.named, 2);
	assert_string_equal(o.name, "named_function");
	assert_false(o.is_stripped);
}

static int64_t cached_inode(void)
{
	char name[256], path[512];
	struct stat st;

	assert_int_equal(cached(name), 1);
	snprintf(path, sizeof(path), "%s/%s", cache, name);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	return (int64_t)st.st_ino;
}

static int cached_open(int flags)
{
	char name[256], path[512];
	int fd;

	assert_int_equal(cached(name), 1);
	snprintf(path, sizeof(path), "%s/%s", cache, name);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void helpers_symbols__a_symbol_file__is_made_once(void **state)
{
	struct stat st;
	int64_t inode;

	(void)state;
	expect_named();
	inode = cached_inode();
	expect_named();
	restart();
	expect_named();
	assert_int_equal(cached_inode(), inode);
	assert_int_equal(stat(cache, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

/* Proof that the answer comes from there: it says something else than the program. */
static void helpers_symbols__what_the_symbol_file_says__is_the_answer(void **state)
{
	struct symbol_packed_header h;
	struct elf_blake2b hash;
	struct outcome o;
	off_t bytes;
	char *data, *at;
	int fd;

	(void)state;
	expect_named();
	fd = cached_open(O_RDWR);
	bytes = lseek(fd, 0, SEEK_END);
	data = malloc((size_t)bytes);
	assert_int_equal(pread(fd, data, (size_t)bytes, 0), bytes);
	at = memmem(data, (size_t)bytes, "named_function", 15);
	assert_non_null(at);
	memcpy(at, "other", 5);
	memcpy(&h, data, sizeof(h));
	memset(h.checksum, 0, sizeof(h.checksum));
	elf_blake2b_init(&hash);
	elf_blake2b_add(&hash, data + sizeof(h), (size_t)bytes - sizeof(h));
	elf_blake2b_add(&hash, &h, sizeof(h));
	elf_blake2b_end(&hash, h.checksum);
	memcpy(data, &h, sizeof(h));
	assert_int_equal(pwrite(fd, data, (size_t)bytes, 0), bytes);
	close(fd);
	free(data);
	restart();
	names_of(&o);
	assert_string_equal(o.name, "other_function");
}

static void damage_byte(int fd, off_t bytes)
{
	char c;

	assert_int_equal(pread(fd, &c, 1, bytes / 2), 1);
	c ^= 1;
	assert_int_equal(pwrite(fd, &c, 1, bytes / 2), 1);
}

static void damage_cut(int fd, off_t bytes)
{
	assert_int_equal(ftruncate(fd, bytes - 5), 0);
}

static void damage_empty(int fd, off_t bytes)
{
	(void)bytes;
	assert_int_equal(ftruncate(fd, 0), 0);
}

static void damage_version(int fd, off_t bytes)
{
	uint32_t version = SYMBOL_PACKED_VERSION + 1;

	(void)bytes;
	assert_int_equal(pwrite(fd, &version, 4, offsetof(struct symbol_packed_header, version)),
			 4);
}

static void helpers_symbols__a_damaged_one__is_made_anew(void **state)
{
	void (*const damages[])(int, off_t) = {damage_byte, damage_cut, damage_empty,
					       damage_version};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(damages); i++) {
		struct symbol_packed *p;
		int fd;

		expect_named();
		fd = cached_open(O_RDWR);
		damages[i](fd, lseek(fd, 0, SEEK_END));
		assert_int_not_equal(symbol_packed_open(fd, NULL, &p, NULL), 0);
		close(fd);
		restart();
		expect_named();
		fd = cached_open(O_RDONLY);
		assert_int_equal(symbol_packed_open(fd, NULL, &p, NULL), 0);
		symbol_packed_close(p);
		close(fd);
	}
}

static void helpers_symbols__one_that_vanishes__costs_no_name(void **state)
{
	char name[256], path[512];

	(void)state;
	expect_named();
	assert_int_equal(cached(name), 1);
	snprintf(path, sizeof(path), "%s/%s", cache, name);
	unlink(path);
	expect_named();
}

static void helpers_symbols__another_source__is_another_symbol_file(void **state)
{
	static const char was[] = "named_function", is[] = "NAMED_function";
	char bytes[1 << 16];
	struct outcome o;
	off_t at = 0;
	ssize_t n;
	int fd;

	(void)state;
	expect_named();
	/* The same build-id, other names. */
	copy_self(other);
	fd = open(other, O_RDWR | O_CLOEXEC);
	while ((n = pread(fd, bytes, sizeof(bytes), at)) > (ssize_t)sizeof(was)) {
		char *p = bytes;

		while ((p = memmem(p, (size_t)(bytes + n - p), was, sizeof(was))) != NULL) {
			assert_true(pwrite(fd, is, 5, at + (p - bytes)) == 5);
			p++;
		}
		at += n - (ssize_t)sizeof(was);
	}
	close(fd);
	look(other);
	file.key = 2;
	names_of(&o);
	assert_string_equal(o.name, "NAMED_function");
	assert_int_equal(cached(NULL), 2);
}

static uint32_t nobodys_pid(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	return (uint32_t)pid;
}

/* The program and its process are gone; what is left is a build-id. */
static void ask_gone(struct outcome *inspected, struct outcome *named)
{
	file.tgid = nobodys_pid();
	file.key = 3;
	unlink(program);
	memset(inspected, 0, sizeof(*inspected));
	assert_int_equal(helpers_inspect(helpers, &file, on_done, inspected), 0);
	wait_for(inspected);
	names_of(named);
}

static void helpers_symbols__a_program_that_is_gone__has_its_names(void **state)
{
	struct outcome inspected, named;

	(void)state;
	expect_named();
	restart();
	ask_gone(&inspected, &named);
	assert_int_equal(inspected.err, 0);
	assert_memory_equal(&inspected.info, &info, sizeof(info));
	assert_int_equal(named.err, 0);
	assert_string_equal(named.name, "named_function");
}

static void helpers_symbols__upgraded__has_the_names_it_had(void **state)
{
	struct outcome inspected, named;

	(void)state;
	expect_named();
	restart();
	file.tgid = nobodys_pid();
	file.key = 3;
	unlink(program);
	assert_int_equal(symlink("/bin/true", program), 0);
	memset(&inspected, 0, sizeof(inspected));
	assert_int_equal(helpers_inspect(helpers, &file, on_done, &inspected), 0);
	wait_for(&inspected);
	assert_int_equal(inspected.err, 0);
	names_of(&named);
	assert_string_equal(named.name, "named_function");
}

static void expect_gone(void)
{
	struct outcome inspected, named;

	restart();
	ask_gone(&inspected, &named);
	assert_int_equal(inspected.err, -ESRCH);
	assert_int_equal(inspected.unnamed, FLY_UNNAMED_FILE_GONE);
	assert_int_equal(named.err, -ESRCH);
	assert_int_equal(named.unnamed, FLY_UNNAMED_FILE_GONE);
}

static void helpers_symbols__a_build_id_alone__leads_to_no_file_of_a_user(void **state)
{
	(void)state;
	assert_int_equal(chown(program, 1234, 1234), 0);
	expect_named();
	expect_gone();
}

static void helpers_symbols__a_build_id_of_two__leads_to_neither(void **state)
{
	char name[256], from[512], to[512];
	size_t len;

	(void)state;
	expect_named();
	assert_int_equal(cached(name), 1);
	snprintf(from, sizeof(from), "%s/%s", cache, name);
	len = strlen(name) - strlen(".sym");
	name[len - 1] = name[len - 1] == '0' ? '1' : '0';
	snprintf(to, sizeof(to), "%s/%s", cache, name);
	assert_int_equal(link(from, to), 0);
	expect_gone();
}

static void helpers_symbols__past_its_limit__the_oldest_go(void **state)
{
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	char path[512];
	int fd;

	(void)state;
	helpers_stop(helpers);
	snprintf(path, sizeof(path), "%s/old.sym", cache);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(posix_fallocate(fd, 0, 1 << 20), 0);
	futimens(fd, old);
	close(fd);
	start((1 << 20) + 8192);
	assert_int_equal(cached(NULL), 1);
	expect_named();
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(cached(NULL), 1);
}

static void helpers_symbols__no_room_at_all__names_all_the_same(void **state)
{
	(void)state;
	helpers_stop(helpers);
	start(1);
	expect_named();
	assert_int_equal(cached(NULL), 0);
	expect_named();
}

static void helpers_symbols__what_others_may_write__is_refused(void **state)
{
	struct helpers_options options = {.directory = HELPERS_DIR, .deadline_ms = DEADLINE_MS};
	struct why why = {""};

	(void)state;
	helpers_stop(helpers);
	assert_int_equal(chmod(cache, 0777), 0);
	assert_int_equal(helpers_start(&options, &helpers, &why), 0);
	assert_int_equal(helpers_symbols_start(helpers, cache, 0, &why), -EACCES);
	expect_named();
	assert_int_equal(cached(NULL), 0);
}

static void helpers_symbols__stopped_in_between__leaves_nothing_half_made(void **state)
{
	struct outcome o = {0};
	uint64_t vaddr = address();
	char name[256] = "";

	(void)state;
	/* Whatever it was at by then. */
	for (int polls = 0; polls < 6; polls++) {
		memset(&o, 0, sizeof(o));
		assert_int_equal(helpers_names(helpers, &file, &vaddr, 1, on_done, &o), 0);
		for (int i = 0; i < polls && !o.calls; i++) {
			struct pollfd p = {.fd = helpers_fd(helpers), .events = POLLIN};

			poll(&p, 1, 50);
			helpers_poll(helpers);
		}
		restart();
		assert_int_equal(o.calls, 1);
		assert_true(!o.err || o.err == -ECANCELED);
		/* The next round makes it anew. */
		while (cached(name)) {
			char path[512];

			assert_null(strstr(name, ".part"));
			snprintf(path, sizeof(path), "%s/%s", cache, name);
			unlink(path);
		}
	}
	expect_named();
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(helpers_symbols__a_symbol_file__is_made_once),
		T(helpers_symbols__what_the_symbol_file_says__is_the_answer),
		T(helpers_symbols__a_damaged_one__is_made_anew),
		T(helpers_symbols__one_that_vanishes__costs_no_name),
		T(helpers_symbols__another_source__is_another_symbol_file),
		T(helpers_symbols__a_program_that_is_gone__has_its_names),
		T(helpers_symbols__upgraded__has_the_names_it_had),
		T(helpers_symbols__a_build_id_alone__leads_to_no_file_of_a_user),
		T(helpers_symbols__a_build_id_of_two__leads_to_neither),
		T(helpers_symbols__past_its_limit__the_oldest_go),
		T(helpers_symbols__no_room_at_all__names_all_the_same),
		T(helpers_symbols__what_others_may_write__is_refused),
		T(helpers_symbols__stopped_in_between__leaves_nothing_half_made),
	};

	if (geteuid() != 0) {
		puts("SKIP: the helpers need root");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
