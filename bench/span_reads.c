// SPDX-License-Identifier: Apache-2.0
/*
 * bench_span_reads: what reading a thread's span adds to a sample in the kernel, in interleaved
 * rounds, beside a loop that reads none; medians are printed. Fails when a process that publishes
 * nothing, or one that publishes a span, costs more than they may. Run by bench/spans, as root.
 */
#include <linux/types.h>

#include "abi/span_place.h"
#include "bench/span_door.h"
#include "flyball/context.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "span_door.skel.h"

#define ROUNDS	      101
#define OTHERS	      1000
#define SILENT_MAX    15.0
#define SPAN_MAX      100.0
#define ATTRIBUTE_100 98 /* with its head 100 bytes */

/* OTEP 4947: what libflyball-context publishes by. */
extern _Thread_local struct flyball_context *otel_thread_ctx_v1;

enum kind { KIND_EMPTY, KIND_SILENT, KIND_SPAN, KIND_ATTRIBUTE, KINDS };

static void die(const char *what)
{
	fprintf(stderr, "spans: %s\n", what);
	exit(4);
}

static void set_place(struct span_door_bpf *door, bool is_there, uint64_t start_ns)
{
	uint32_t tgid = (uint32_t)getpid();
	const struct fly_span_place place = {
		.start_ns = start_ns,
		.offset = (char *)&otel_thread_ctx_v1 - (char *)__builtin_thread_pointer(),
	};

	if (is_there)
		bpf_map_update_elem(bpf_map__fd(door->maps.fly_spans), &tgid, &place, BPF_ANY);
	else
		bpf_map_delete_elem(bpf_map__fd(door->maps.fly_spans), &tgid);
}

static void fill_with_others(struct span_door_bpf *door)
{
	const struct fly_span_place place = {.start_ns = 1};

	for (uint32_t i = 0; i < OTHERS; i++) {
		uint32_t tgid = (1U << 22) + i; /* no PID */

		if (bpf_map_update_elem(bpf_map__fd(door->maps.fly_spans), &tgid, &place, BPF_ANY))
			die("no room for other processes");
	}
}

static double run(struct span_door_bpf *door, volatile struct span_door *page, enum kind kind)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	page->has_spans = kind != KIND_EMPTY;
	if (bpf_prog_test_run_opts(bpf_program__fd(door->progs.span_door), &options))
		die("the program cannot be run");
	return (double)page->ns / SPAN_DOOR_CALLS;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double ns[ROUNDS])
{
	qsort(ns, ROUNDS, sizeof(ns[0]), compare);
	return ns[ROUNDS / 2];
}

int main(void)
{
	static const uint8_t trace_id[16] = {1}, span_id[8] = {2};
	static double more[KINDS][ROUNDS], empty[ROUNDS];
	struct span_door_bpf *door = span_door_bpf__open_and_load();
	char value[ATTRIBUTE_100] = {0};
	volatile struct span_door *page;
	double silent, span, attribute;

	if (!door || flyball_context_attach())
		die("the kernel refused the program");
	page = mmap(NULL, (size_t)getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED,
		    bpf_map__fd(door->maps.fly_door), 0);
	if (page == MAP_FAILED)
		die("no mapping of the door");
	fill_with_others(door);
	for (int i = 0; i < ROUNDS; i++) {
		empty[i] = run(door, page, KIND_EMPTY);
		set_place(door, false, 0);
		more[KIND_SILENT][i] = run(door, page, KIND_SILENT) - empty[i];
		set_place(door, true, page->start_ns);
		flyball_context_enter(trace_id, span_id, 1);
		more[KIND_SPAN][i] = run(door, page, KIND_SPAN) - empty[i];
		if (!page->state)
			die("the span was not read");
		flyball_context_attribute(0, value, sizeof(value));
		more[KIND_ATTRIBUTE][i] = run(door, page, KIND_ATTRIBUTE) - empty[i];
		if (page->attribute_bytes != sizeof(value) + 2)
			die("the attribute was not read");
		flyball_context_leave();
	}
	silent = median(more[KIND_SILENT]);
	span = median(more[KIND_SPAN]);
	attribute = median(more[KIND_ATTRIBUTE]);
	printf("more for a sample, beside a loop of %.1f ns: of a process that publishes nothing "
	       "%.1f ns (at most %.0f), of a span %.1f ns (at most %.0f), with 100 bytes of "
	       "attributes %.1f ns (medians of %d)\n",
	       median(empty), silent, SILENT_MAX, span, SPAN_MAX, attribute, ROUNDS);
	span_door_bpf__destroy(door);
	return silent <= SILENT_MAX && span <= SPAN_MAX ? 0 : 1;
}
