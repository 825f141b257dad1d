// SPDX-License-Identifier: Apache-2.0
/* frames-of [-s SUPPLEMENT] [-t] [-b BATCH] FILE   frames of the hexadecimal addresses on stdin
 *
 * For each address, by value: a line "0xADDRESS STATE", then for each frame, innermost first,
 * "  function<TAB>file:line". -t: time taken and peak memory on stderr. */
#include "symbol/symbol_frames.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const struct symbol_frames_limits limits = {.cpu_ns = 5000000000};

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

static void print(const struct symbol_frames *frames)
{
	static const char *const states[] = {"none", "found", "not-reached", "too-large"};

	for (size_t i = 0; i < frames->count; i++) {
		const struct symbol_frames_answer *a = &frames->answers[i];

		printf("0x%" PRIx64 " %s\n", a->address, states[a->state]);
		for (uint32_t k = 0; k < a->count; k++) {
			const struct symbol_frame *f = &frames->frames[a->first + k];

			printf("  %s\t%s:%" PRIu32 "\n", strings_get(frames->strings, f->function),
			       strings_get(frames->strings, f->file), f->line);
		}
	}
}

static void ask(struct elf_file *elf, struct elf_file *supplement, const uint64_t *addresses,
		size_t count)
{
	struct symbol_frames *frames;
	struct why why = {""};
	int err = symbol_frames_new(addresses, count, &frames);

	if (!err)
		err = symbol_frames_find(elf, supplement, &limits, frames, &why);
	if (err) {
		fprintf(stderr, "%s: %s\n", strerror(-err), why.text);
		exit(1);
	}
	print(frames);
	symbol_frames_free(frames);
}

int main(int argc, char **argv)
{
	struct elf_file *supplement = NULL, *elf;
	size_t count = 0, batch = 512;
	uint64_t *addresses = NULL, start;
	bool is_timed = false;
	struct rusage usage;
	char line[64];
	int option;

	while ((option = getopt(argc, argv, "s:tb:")) != -1) {
		if (option == 's')
			supplement = open_file(optarg);
		else if (option == 't')
			is_timed = true;
		else if (option != 'b' || text_parse_u64(optarg, 1, 1 << 20, &batch))
			return 2;
	}
	if (optind + 1 != argc)
		return 2;
	elf = open_file(argv[optind]);
	while (fgets(line, sizeof(line), stdin)) {
		addresses = realloc(addresses, (count + 1) * sizeof(*addresses));
		if (!addresses)
			return 1;
		addresses[count++] = strtoull(line, NULL, 16);
	}
	start = clock_monotonic_ns();
	for (size_t i = 0; i < count; i += batch)
		ask(elf, supplement, addresses + i, count - i < batch ? count - i : batch);
	getrusage(RUSAGE_SELF, &usage);
	if (is_timed)
		fprintf(stderr, "%zu addresses, %.3f ms, %ld KiB at most\n", count,
			(double)(clock_monotonic_ns() - start) / 1e6, usage.ru_maxrss);
	free(addresses);
	elf_close(supplement);
	elf_close(elf);
	return 0;
}
