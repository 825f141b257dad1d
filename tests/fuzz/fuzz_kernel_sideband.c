// SPDX-License-Identifier: Apache-2.0
/* One perf record, and the same bytes as a ring whose records wrap around its end. */
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/kernel_internal.h"

#define PAGE 4096U

static void take(void *ctx, const struct kernel_event *event, const char *text)
{
	size_t *sum = ctx;

	*sum += event->tgid + (text ? strlen(text) : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kernel_sideband_cpu side = {.fd = -1, .map_bytes = 2 * PAGE, .data_bytes = PAGE};
	struct kernel_event event;
	struct perf_event_mmap_page *page;
	uint8_t *scratch = malloc(65536);
	size_t sum = 0, bytes = size < PAGE ? size : PAGE;
	const char *text;
	uint64_t tail;

	if (kernel_sideband_decode(data, size, &event, &text) > 0)
		take(&sum, &event, text);
	side.map = calloc(2, PAGE);
	page = side.map;
	/* Any multiple of 8 may be the tail. */
	tail = size ? data[0] * 8ULL : 0;
	for (size_t i = 0; scratch && page && i < bytes; i++)
		((uint8_t *)page)[PAGE + ((tail + i) & (PAGE - 1))] = data[i];
	if (scratch && page) {
		page->data_tail = tail;
		page->data_head = tail + (bytes & ~(size_t)7);
		kernel_sideband_drain(&side, scratch, take, &sum);
		if (page->data_tail != page->data_head)
			abort();
	}
	free(side.map);
	free(scratch);
	return 0;
}
