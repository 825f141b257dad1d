// SPDX-License-Identifier: Apache-2.0
/* totals: what the summary asks. One pass over the samples; nothing is kept. */
#include "frames.h"

#include <string.h>

void profile_totals_get(const struct profile *p, struct profile_totals *ret)
{
	struct profile_totals t = {.stacks = p->stacks.count,
				   .locations = p->locations.count,
				   .processes = p->processes.count,
				   .files = p->files.count,
				   .spans = p->spans.count};

	for (uint32_t i = 0; i < p->samples.count; i++) {
		const struct profile_sample_key *key = profile_sample_key(p, i);
		uint64_t count = p->sample_rows[i].count;
		uint32_t bits = profile_cut_bits(p, key);
		size_t frames;
		const uint32_t *stack = profile_stack(p, key->stack, &frames);

		t.samples += count;
		t.weight_ns += count * key->weight_ns;
		t.weight_variance +=
			(double)count * (double)key->weight_ns * (double)key->weight_ns;
		t.complete += bits ? 0 : count;
		t.span_samples += key->span ? count : 0;
		t.span_ns += key->span ? count * key->weight_ns : 0;
		t.span_faults[key->span_fault] += key->span_fault ? count : 0;
		for (int cut = 0; cut < FLY_CUT_COUNT; cut++)
			t.cut[cut] += bits & 1U << cut ? count : 0;
		if (frames && !p->location_rows[stack[0]].name)
			t.unnamed_samples[p->location_rows[stack[0]].unnamed] += count;
	}
	for (uint32_t i = 0; i < p->locations.count; i++) {
		t.lined += p->location_rows[i].lines > 0;
		t.inlined += profile_location_frames(p, i) > 1;
		t.unlined[p->location_rows[i].unlined] += p->location_rows[i].unlined > 0;
	}
	*ret = t;
}

int profile_processes(const struct profile *p,
		      int (*visit)(void *ctx, const struct profile_process *process), void *ctx)
{
	int err = 0;

	for (uint32_t i = 0; i < p->processes.count && !err; i++) {
		const struct profile_process_key *key = profile_process_key(p, i);
		const struct profile_process_row *row = &p->process_rows[i];
		struct profile_process process = {
			.pid = key->pid,
			.start_ns = key->start_ns,
			.program = key->program,
			.comm = strings_get(p->strings, row->comm),
			.exe = strings_get(p->strings, row->exe),
			.container = strings_get(p->strings, row->container),
			.cgroup = strings_get(p->strings, row->cgroup),
			.service = strings_get(p->strings, row->service),
		};

		err = visit(ctx, &process);
	}
	return err;
}

int profile_files(const struct profile *p, int (*visit)(void *ctx, const struct profile_file *file),
		  void *ctx)
{
	int err = 0;

	for (uint32_t i = 0; i < p->files.count && !err; i++) {
		const struct profile_file_row *row = &p->file_rows[i];
		struct profile_file file = {.path = strings_get(p->strings, row->path),
					    .build_id_len = row->build_id_len,
					    .has_htlhash = row->has_htlhash};

		memcpy(file.build_id, row->build_id, sizeof(file.build_id));
		memcpy(file.htlhash, row->htlhash, sizeof(file.htlhash));
		err = visit(ctx, &file);
	}
	return err;
}
