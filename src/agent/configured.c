// SPDX-License-Identifier: Apache-2.0
/* configured: what a configuration asks of the kernel side, as far as this machine allows it. */
#include "agent/agent.h"

#include <errno.h>
#include <unistd.h>

#include "abi/table_space.h"
#include "config/config.h"

static uint64_t budget_bytes(uint32_t ppm_of_ram)
{
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	return ram / 1000000 * ppm_of_ram;
}

/* Tables get the smaller of what is configured and what the budget leaves beside all else. */
static int fit_tables(uint64_t most, struct kernel_options *options, struct why *why)
{
	struct kernel_memory memory;
	uint64_t segments = most / FLY_SEGMENT_BYTES;
	int err = -ENOSPC;

	if (segments > FLY_SEGMENTS_MAX)
		segments = FLY_SEGMENTS_MAX;
	for (; err == -ENOSPC && segments; segments--) {
		options->table_bytes = segments * FLY_SEGMENT_BYTES;
		err = kernel_plan(options, &memory, why);
	}
	return err;
}

int agent_kernel_options(const struct config *config, struct kernel_options *ret, struct why *why)
{
	struct kernel_options options;
	struct kernel_memory memory;
	int err;

	kernel_options_init(&options);
	options.target = FLY_TARGET_ALL;
	options.hz = config->sampling_hz;
	options.depth = config->max_stack_depth;
	options.ring_bytes = (uint64_t)config->ring_buffer_kb << 10;
	options.budget_bytes = budget_bytes(config->memory.budget_ppm);
	if (config->unwind_strategy == CONFIG_UNWIND_FRAME_POINTERS) {
		options.unwinder = FLY_UNWIND_FRAME_POINTERS;
		options.table_bytes = 0;
		err = kernel_plan(&options, &memory, why);
	} else {
		options.unwinder = FLY_UNWIND_TABLES;
		err = fit_tables(config->ebpf.table_bytes, &options, why);
	}
	if (!err)
		*ret = options;
	return err;
}
