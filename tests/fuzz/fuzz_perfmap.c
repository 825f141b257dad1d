// SPDX-License-Identifier: Apache-2.0
/* Any text as a perf map. */
#include "symbol/symbol.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define QUERIES 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_query q[QUERIES] = {{0}};
	struct symbol_perfmap_stats stats;
	int fd = memfd_create("map", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	for (uint64_t i = 0; i < QUERIES; i++)
		q[i].address = i < 16 ? i : 1ULL << (2 * i);
	if (symbol_lookup_perfmap(fd, q, QUERIES, &stats, NULL))
		abort();
	close(fd);
	if (stats.lines + stats.skipped > size)
		abort();
	for (size_t i = 0; i < QUERIES; i++) {
		if (q[i].found && (q[i].start > q[i].address || !stats.lines ||
				   !text_is_utf8(q[i].name, strlen(q[i].name))))
			abort();
		mem_free(MEM_SYMBOL, q[i].name);
	}
	if (mem_live_bytes(MEM_SYMBOL))
		abort();
	return 0;
}
