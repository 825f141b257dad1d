// SPDX-License-Identifier: Apache-2.0
/* What tables/ asks of kernel memory, asked of the kernel part. */
#include "record_private.h"

static void *segment_add(void *ctx, uint32_t segment)
{
	struct why why = {""};
	void *words = kernel_segment_add(ctx, segment, &why);

	if (!words)
		log_debug("%s", why.text);
	return words;
}

static void segment_remove(void *ctx, uint32_t segment)
{
	kernel_segment_remove(ctx, segment);
}

static int wait_for_walks(void *ctx)
{
	return kernel_tables_wait(ctx);
}

static int process_put(void *ctx, uint32_t tgid, const struct fly_process *process)
{
	return kernel_process_put(ctx, tgid, process);
}

static int process_remove(void *ctx, uint32_t tgid)
{
	return kernel_process_remove(ctx, tgid);
}

int unwinding_open(struct kernel *kernel, const struct kernel_options *options,
		   struct helpers *helpers, struct unwinding **ret)
{
	struct unwinding_options unwinding = {
		.helpers = helpers,
		.tables = {.calls = {.ctx = kernel,
				     .segment_add = segment_add,
				     .segment_remove = segment_remove,
				     .wait = wait_for_walks,
				     .process_put = process_put,
				     .process_remove = process_remove},
			   .published = kernel_tables(kernel),
			   .bytes_max = options->table_bytes,
			   .processes_max = options->processes},
	};

	return unwinding_new(&unwinding, ret);
}
