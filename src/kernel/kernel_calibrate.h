/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_calibrate: what one tick of the sample clock costs on this machine.
 *
 * The interrupt's time is in nobody's accounting: it hides in the CPU time of what it interrupts,
 * and differs twenty-fold between machines. So it is measured: a child on one CPU does the same
 * work with the sampling event and without, in pairs close together, and what takes longer is
 * divided by the ticks that came. The programs' own run time is not in it; they measure that
 * themselves.
 */
#ifndef FLYBALL_KERNEL_CALIBRATE_H
#define FLYBALL_KERNEL_CALIBRATE_H

#include "base/base.h"

#define KERNEL_CALIBRATION_FILE "/var/cache/flyball/calibration"

struct kernel_calibration {
	uint64_t tick_ns;	  /* median of the pairs */
	uint64_t low_ns, high_ns; /* 95 % interval of the median */
	/* Least and most of the rounds' medians, of this calibration and those before it here. */
	uint64_t seen_low_ns, seen_high_ns;
	uint32_t pairs, cpu;
	uint64_t measured_s; /* CLOCK_REALTIME */
	char machine[200];   /* CPU model and kernel: what it holds for */
};
/* Rounds, each some hundred milliseconds of one CPU. -EBUSY: too much else runs for a figure. */
int kernel_calibrate(struct kernel_calibration *ret, struct why *why);

/* Whether the medians seen lie within a third of the figure. A virtual machine's may not: then the
 * dearest that was seen is the one to plan with. */
bool kernel_calibration_is_trusted(const struct kernel_calibration *c);
uint64_t kernel_calibration_planned_ns(const struct kernel_calibration *c);
/* A calibration out of rounds, each with its median and interval. For tests, too. */
void kernel_calibration_merge(const struct kernel_calibration *rounds, size_t count,
			      struct kernel_calibration *ret);
/* What was seen before on the same machine stays seen. */
void kernel_calibration_remember(const struct kernel_calibration *before,
				 struct kernel_calibration *c);

/* What a calibration holds for, as of now. */
void kernel_calibration_machine(char *machine, size_t size);
/* Replaces the file as a whole; its directory is made if need be. */
int kernel_calibration_write(const char *path, const struct kernel_calibration *c, struct why *why);
/* -ENOENT none there, -ESTALE measured on another machine or kernel, -EPERM others may write it,
 * -EBADMSG damaged. */
int kernel_calibration_read(const char *path, struct kernel_calibration *ret, struct why *why);

/* Median and its 95 % interval of values, which get sorted; count at least 8. For tests, too. */
void kernel_calibration_median(double *values, size_t count, struct kernel_calibration *ret);

/* Moves the costs of good pairs to the front and returns how many they are. Work without the event
 * that took longer than it can was interrupted by something else, such as another profiler, whose
 * interrupts take ours along and make them look cheap. 0 when over a fifth are bad: then the others
 * are not to be trusted. */
uint32_t kernel_calibration_keep(double *costs_ns, const uint64_t *without_ns, uint32_t count,
				 uint64_t work_ns);

#endif
