// SPDX-License-Identifier: Apache-2.0
/* cost: what all our processes used, from the kernel's accounting of ourselves and our helpers.
 * Interrupts hide in the victims' time; that part is ticks times what was calibrated. */
#include "record_private.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int64_t timeval_ns(struct timeval t)
{
	return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000;
}

static uint64_t own_anon_bytes(void)
{
	uint64_t kib = 0;
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "RssAnon:", 8)) {
			kib = strtoull(line + 8, NULL, 10);
			break;
		}
	}
	fclose(f);
	return kib * 1024;
}

void cost_sample(struct cost *cost, struct helpers *helpers, const struct helpers_fetch *fetch)
{
	uint64_t user = 0, system = 0, bytes = 0;
	struct helpers_stats stats = {0};
	struct rusage self;
	uint64_t anon;

	if (helpers)
		helpers_stats_get(helpers, &stats);
	if (fetch)
		helpers_fetch_cost(fetch, &user, &system, &bytes);
	getrusage(RUSAGE_SELF, &self);
	cost->own_user_ns = timeval_ns(self.ru_utime) + (int64_t)(stats.own_user_ns + user);
	cost->own_system_ns = timeval_ns(self.ru_stime) + (int64_t)(stats.own_system_ns + system);
	anon = own_anon_bytes() + stats.anon_bytes + bytes;
	if (anon > cost->peak_anon_bytes)
		cost->peak_anon_bytes = anon;
}

void cost_interrupts(struct cost *cost, const char *file, uint64_t ticks)
{
	if (!cost->ticks.tick_ns && kernel_calibration_read(file ? file : KERNEL_CALIBRATION_FILE,
							    &cost->ticks, &cost->no_ticks))
		return;
	cost->interrupt_ns = ticks * cost->ticks.tick_ns;
}

void cost_calibrate(struct cost *cost, const char *file)
{
	if (kernel_calibration_read(file ? file : KERNEL_CALIBRATION_FILE, &cost->ticks, NULL) &&
	    kernel_calibrate(&cost->ticks, &cost->no_ticks))
		log_warn("the budget is held without the cost of interrupts: %s",
			 cost->no_ticks.text);
	else if (!kernel_calibration_is_trusted(&cost->ticks))
		log_warn("the cost of an interrupt is not to be trusted: %.1f to %.1f us were seen "
			 "here; the budget is held with the dearest",
			 (double)cost->ticks.seen_low_ns / 1e3,
			 (double)cost->ticks.seen_high_ns / 1e3);
}
