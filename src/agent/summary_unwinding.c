// SPDX-License-Identifier: Apache-2.0
/* summary: what lay in kernel memory for stacks to be walked by tables. */
#include "summary_unwinding.h"
#include "figures_json.h"

#include <inttypes.h>
#include <jansson.h>

void summary_unwinding_print(const struct unwinding_stats *u, FILE *to)
{
	const struct tables_stats *t = &u->tables;
	char peak[32], max[32], tables[32], mappings[32];
	bool has_refused = false;

	fprintf(to,
		"  tables     %" PRIu32 " of %" PRIu32 " files whole, %" PRIu32 " in part; %" PRIu32
		" processes\n",
		t->held, t->numbers, t->held_in_part, t->processes);
	fprintf(to, "             %s of tables, %s of mappings; at most %s held, of %s\n",
		text_bytes(t->table_bytes, tables, sizeof(tables)),
		text_bytes(t->mapping_bytes, mappings, sizeof(mappings)),
		text_bytes(t->bytes_peak, peak, sizeof(peak)),
		text_bytes(t->bytes_max, max, sizeof(max)));
	if (t->fills || t->pages_evicted || t->tables_evicted || t->processes_evicted)
		fprintf(to,
			"             on demand %" PRIu64 " pages; put out %" PRIu64
			" pages, %" PRIu64 " tables, %" PRIu64 " processes\n",
			t->fills, t->pages_evicted, t->tables_evicted, t->processes_evicted);
	for (int i = 0; i < TABLES_REFUSALS; i++) {
		if (!t->refused[i])
			continue;
		fprintf(to, "%s%" PRIu32 " %s", has_refused ? ", " : "  no table   ", t->refused[i],
			tables_refusal_text((enum tables_refusal)i));
		has_refused = true;
	}
	if (has_refused)
		fputs(" (files)\n", to);
}

static json_t *refused(const struct tables_stats *t)
{
	static const char *const names[TABLES_REFUSALS] = {
		[TABLES_REFUSED_NO_CFI] = "no_cfi",
		[TABLES_REFUSED_DAMAGED] = "damaged",
		[TABLES_REFUSED_TOO_LARGE] = "too_large",
		[TABLES_REFUSED_UNSUPPORTED] = "unsupported",
		[TABLES_REFUSED_UNREADABLE] = "unreadable",
	};
	json_t *o = json_object();

	for (int i = 0; i < TABLES_REFUSALS; i++)
		json_object_set_new(o, names[i], json_number(t->refused[i]));
	return o;
}

json_t *summary_unwinding_json(const struct unwinding_stats *u)
{
	const struct tables_stats *t = &u->tables;
	const struct json_figure counts[] = {
		{"bytes_max", t->bytes_max},
		{"bytes", t->bytes},
		{"bytes_peak", t->bytes_peak},
		{"table_bytes", t->table_bytes},
		{"mapping_bytes", t->mapping_bytes},
		{"copy_bytes_peak", t->copy_peak},
		{"files", t->numbers},
		{"held", t->held},
		{"held_in_part", t->held_in_part},
		{"processes", t->processes},
		{"processes_peak", t->processes_peak},
		{"built_total", t->built},
		{"shared_total", t->shared},
		{"pages_filled_total", t->fills},
		{"pages_evicted_total", t->pages_evicted},
		{"tables_evicted_total", t->tables_evicted},
		{"processes_evicted_total", t->processes_evicted},
		{"expired_total", t->expired},
		{"waits_total", t->waits},
		{"moves_total", t->moved},
		{"shortages_total", t->short_of_memory},
		{"segments_failed_total", t->segments_failed},
		{"files_without_number_total", t->numbers_short},
		{"mappings_left_total", u->mappings_left},
	};

	json_t *o = json_figures(counts, ARRAY_SIZE(counts));

	json_object_set_new(o, "refused", refused(t));
	return o;
}
