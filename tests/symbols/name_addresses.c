// SPDX-License-Identifier: Apache-2.0
/* name-addresses [-d DEBUGFILE] [-l] [-p | -s SYMBOLS] [-t] FILE
 *                                  names for the hexadecimal addresses on stdin
 * name-addresses -k KALLSYMS       the same in the kernel; a module stands behind the name
 * name-addresses -m                the names on stdin, demangled
 * name-addresses -c FILE           where FILE's separate debug files may lie
 *
 * One line per address, in the order asked: address, start of the symbol, name ("-" for none), and
 * with -l file:line by Go's table. -d: what is left is asked of DEBUGFILE, which is verified as
 * the build-id's or the debug link's. -p: a symbol file is made first, and asked. -s: the same, and
 * it is SYMBOLS, which is used if it is there and of FILE. -t: time taken and peak memory on
 * stderr; with a symbol file what that took, and one look-up in it without the name. */
#include "elf/elf_debug.h"
#include "symbol/symbol_packed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH 4096
#define FINDS 1000000

static int by_address(const void *a, const void *b)
{
	const struct symbol_query *p = a, *q = b;

	return p->address < q->address ? -1 : p->address > q->address;
}

static struct elf_file *open_file(const char *path)
{
	struct why why = {""};
	struct elf_file *elf;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || elf_open(fd, &elf, &why)) {
		fprintf(stderr, "%s: %s\n", path, fd < 0 ? strerror(errno) : why.text);
		exit(1);
	}
	return elf;
}

static struct elf_file *open_debug(const char *path, struct elf_file *of)
{
	struct elf_file *debug = open_file(path);
	struct elf_debug_links links;
	struct why why = {""};

	elf_debug_links_read(of, &links, &why);
	if (elf_debug_verify(elf_get_info(of), &links, ELF_DEBUG_BUILD_ID, debug, &why) &&
	    (!links.name[0] ||
	     elf_debug_verify(elf_get_info(of), &links, ELF_DEBUG_LINK, debug, &why))) {
		fprintf(stderr, "%s: %s\n", path, why.text);
		exit(1);
	}
	return debug;
}

/* One thing to ask for names: a file, or its symbol file. */
struct names {
	struct elf_file *elf;
	struct symbol_packed *packed;
};

static int open_symbols(const char *path)
{
	return path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
		    : memfd_create("symbols", MFD_CLOEXEC);
}

static struct symbol_packed *pack(struct elf_file *elf, const char *path, bool is_debug,
				  bool is_timed)
{
	uint8_t digest[ELF_BLAKE2B_BYTES];
	const struct symbol_pack_options options = {.digest = digest, .is_table_only = is_debug};
	uint64_t start = clock_monotonic_ns(), digested, made;
	int fd = open_symbols(path);
	struct symbol_packed *packed;
	struct why why = {""};
	struct stat st;

	if (elf_source_digest(elf, digest, &why))
		goto failed;
	digested = clock_monotonic_ns();
	if (symbol_packed_open(fd, digest, &packed, NULL)) {
		if (ftruncate(fd, 0) || symbol_pack(elf, &options, fd, &why))
			goto failed;
		if (symbol_packed_open(fd, digest, &packed, &why))
			goto failed;
	}
	made = clock_monotonic_ns();
	if (is_timed && !fstat(fd, &st))
		fprintf(stderr,
			"digest %.1f ms, made and opened in %.1f ms, %lld KiB, peak %zu KiB\n",
			(double)(digested - start) / 1e6, (double)(made - digested) / 1e6,
			(long long)st.st_size / 1024,
			(mem_peak_bytes(MEM_ELF) + mem_peak_bytes(MEM_SYMBOL)) / 1024);
	close(fd);
	return packed;
failed:
	fprintf(stderr, "%s\n", why.text);
	exit(1);
}

static void ask(const struct names *names, struct symbol_query *queries, size_t count)
{
	struct symbol_query *left = calloc(count, sizeof(*left));
	struct why why = {""};
	size_t n = 0;

	for (size_t i = 0; left && i < count; i++) {
		if (!queries[i].found)
			left[n++] = queries[i];
	}
	if (!left || (names->packed ? symbol_packed_lookup(names->packed, left, n, &why)
				    : symbol_lookup_file(names->elf, left, n, &why)))
		fprintf(stderr, "%s\n", why.text);
	for (size_t i = 0, at = 0; left && i < count; i++) {
		if (!queries[i].found)
			queries[i] = left[at++];
	}
	free(left);
}

static void print(const uint64_t *asked, size_t count, struct symbol_query *queries,
		  const struct symbol_line *lines)
{
	for (size_t i = 0; i < count; i++) {
		struct symbol_query key = {.address = asked[i]}, *q;

		q = bsearch(&key, queries, count, sizeof(*queries), by_address);
		if (q && q->found)
			printf("0x%lx\t0x%lx\t%s", asked[i], q->start, q->name);
		else
			printf("0x%lx\t0\t-", asked[i]);
		if (q && q->module)
			printf("\t%s", q->module);
		if (lines)
			printf("\t%s:%u", lines[i].file ? lines[i].file : "?", lines[i].line);
		putchar('\n');
	}
	for (size_t i = 0; i < count; i++)
		mem_free(MEM_SYMBOL, queries[i].name);
}

static size_t read_addresses(uint64_t *out)
{
	char text[64];
	size_t n = 0;

	while (n < BATCH && fgets(text, sizeof(text), stdin))
		out[n++] = strtoull(text, NULL, 16);
	return n;
}

/* Time of one look-up, over the addresses of a batch in an order that is not theirs. */
static double find_ns(const struct symbol_packed *packed, const uint64_t *asked, size_t count)
{
	uint64_t start = clock_monotonic_ns();
	volatile uint64_t sum = 0;

	for (size_t i = 0; i < FINDS; i++) {
		struct symbol_packed_hit hit = {0};

		symbol_packed_find(packed, asked[i * 7919 % count], &hit);
		sum += hit.start;
	}
	return (double)(clock_monotonic_ns() - start) / FINDS;
}

static int name_all(const char *path, const char *debug_path, bool has_lines, bool is_packed,
		    const char *symbols, bool is_timed)
{
	struct names own = {.elf = open_file(path)}, debug = {0};
	double found_ns = 0;
	static struct symbol_query queries[BATCH];
	static struct symbol_line lines[BATCH];
	static uint64_t asked[BATCH];
	uint64_t spent = 0;
	size_t n;

	debug.elf = debug_path ? open_debug(debug_path, own.elf) : NULL;
	if (is_packed)
		own.packed = pack(own.elf, symbols, false, is_timed);
	if (is_packed && debug.elf)
		debug.packed = pack(debug.elf, NULL, true, is_timed);
	while ((n = read_addresses(asked))) {
		uint64_t start = clock_monotonic_ns();

		memset(queries, 0, sizeof(queries));
		for (size_t i = 0; i < n; i++) {
			queries[i].address = asked[i];
			lines[i] = (struct symbol_line){.address = asked[i]};
		}
		qsort(queries, n, sizeof(*queries), by_address);
		ask(&own, queries, n);
		if (debug.elf)
			ask(&debug, queries, n);
		if (has_lines)
			symbol_lines_go(own.elf, lines, n, NULL);
		spent += clock_monotonic_ns() - start;
		if (is_timed && own.packed)
			found_ns = find_ns(own.packed, asked, n);
		print(asked, n, queries, has_lines ? lines : NULL);
		for (size_t i = 0; i < n; i++)
			mem_free(MEM_SYMBOL, lines[i].file);
	}
	if (is_timed)
		fprintf(stderr, "%.1f ms, peak %zu KiB\n", (double)spent / 1e6,
			(mem_peak_bytes(MEM_ELF) + mem_peak_bytes(MEM_SYMBOL)) / 1024);
	if (is_timed && own.packed)
		fprintf(stderr, "look-up %.0f ns\n", found_ns);
	symbol_packed_close(own.packed);
	symbol_packed_close(debug.packed);
	elf_close(own.elf);
	elf_close(debug.elf);
	return 0;
}

static int name_kernel(const char *path)
{
	static struct symbol_query queries[BATCH];
	static uint64_t asked[BATCH];
	size_t n;

	while ((n = read_addresses(asked))) {
		FILE *kallsyms = fopen(path, "re");
		struct why why = {""};

		memset(queries, 0, sizeof(queries));
		for (size_t i = 0; i < n; i++)
			queries[i].address = asked[i];
		if (!kallsyms || symbol_lookup_kallsyms(kallsyms, queries, n, &why)) {
			fprintf(stderr, "%s: %s\n", path, kallsyms ? why.text : strerror(errno));
			return 1;
		}
		fclose(kallsyms);
		print(asked, n, queries, NULL);
		for (size_t i = 0; i < n; i++)
			mem_free(MEM_SYMBOL, queries[i].module);
	}
	return 0;
}

static int demangle_all(void)
{
	static char text[65536];
	char name[SYMBOL_NAME_MAX];

	while (fgets(text, sizeof(text), stdin)) {
		text[strcspn(text, "\n")] = 0;
		symbol_demangle(text, name, sizeof(name));
		puts(name);
	}
	return 0;
}

static int print_candidate(void *ctx, enum elf_debug_kind kind, const char *path)
{
	(void)ctx;
	printf("%u\t%s\n", (unsigned int)kind, path);
	return 0;
}

static int print_candidates(const char *path)
{
	struct elf_file *elf = open_file(path);
	struct elf_debug_links links;
	struct why why = {""};

	elf_debug_links_read(elf, &links, &why);
	if (why.text[0])
		fprintf(stderr, "%s\n", why.text);
	elf_debug_candidates(elf_get_info(elf), &links, path, print_candidate, NULL);
	elf_close(elf);
	return 0;
}

int main(int argc, char **argv)
{
	bool has_lines = false, is_packed = false, is_timed = false;
	const char *debug = NULL, *symbols = NULL;
	int c;

	while ((c = getopt(argc, argv, "c:d:k:lmps:t")) != -1) {
		switch (c) {
		case 'c':
			return print_candidates(optarg);
		case 'd':
			debug = optarg;
			break;
		case 'k':
			return name_kernel(optarg);
		case 'l':
			has_lines = true;
			break;
		case 'm':
			return demangle_all();
		case 'p':
			is_packed = true;
			break;
		case 's':
			is_packed = true;
			symbols = optarg;
			break;
		case 't':
			is_timed = true;
			break;
		default:
			return 2;
		}
	}
	return optind + 1 == argc
		       ? name_all(argv[optind], debug, has_lines, is_packed, symbols, is_timed)
		       : 2;
}
