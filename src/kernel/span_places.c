// SPDX-License-Identifier: Apache-2.0
/* spans: which processes' threads are asked for their span, in kernel memory. */
#include "kernel/kernel_internal.h"

#include "flyball.skel.h"

#include <bpf/bpf.h>
#include <errno.h>

static int spans_fd(const struct kernel *kernel)
{
	return bpf_map__fd(kernel->bpf->maps.fly_spans);
}

/* The programs look nowhere while it is 0. What they took away themselves is counted still: that
 * costs a look-up a sample and nothing else. */
static void count(struct kernel *kernel, int by)
{
	__atomic_add_fetch(&kernel->control->span_processes, (uint32_t)by, __ATOMIC_RELEASE);
}

int kernel_span_put(struct kernel *kernel, uint32_t tgid, const struct fly_span_place *place)
{
	int err = bpf_map_update_elem(spans_fd(kernel), &tgid, place, BPF_NOEXIST);

	if (!err)
		count(kernel, 1);
	else if (err == -EEXIST)
		err = bpf_map_update_elem(spans_fd(kernel), &tgid, place, BPF_EXIST);
	return err;
}

int kernel_span_remove(struct kernel *kernel, uint32_t tgid)
{
	int err = bpf_map_delete_elem(spans_fd(kernel), &tgid);

	if (!err)
		count(kernel, -1);
	return err;
}
