// SPDX-License-Identifier: Apache-2.0
/* The calibration of ticks: its arithmetic, its file, and (as root) the measuring itself. */
#include "kernel/kernel_calibrate.h"
#include "kernel/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static char directory[] = "/tmp/flyball-calibrate-XXXXXX";
static char path[64];

static int make_directory(void **ctx)
{
	(void)ctx;
	if (!mkdtemp(directory))
		return -1;
	snprintf(path, sizeof(path), "%s/new/file", directory);
	return 0;
}

static int remove_directory(void **ctx)
{
	char sub[64];

	(void)ctx;
	unlink(path);
	snprintf(sub, sizeof(sub), "%s/new", directory);
	rmdir(sub);
	return rmdir(directory);
}

static struct kernel_calibration some(void)
{
	struct kernel_calibration c = {48000, 47000, 49500, 47500, 49000, 40, 3, 1700000000, ""};

	kernel_calibration_machine(c.machine, sizeof(c.machine));
	return c;
}

static void write_text(const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void kernel_calibration__median__has_its_interval(void **ctx)
{
	struct kernel_calibration c = {0};
	double odd[] = {9, 1, 8, 2, 7, 3, 6, 4, 5, 1000, -1000};
	double even[64];

	(void)ctx;
	kernel_calibration_median(odd, ARRAY_SIZE(odd), &c);
	assert_int_equal(c.tick_ns, 5);
	assert_int_equal(c.low_ns, 2);
	assert_int_equal(c.high_ns, 8);
	assert_int_equal(c.pairs, 11);
	for (int i = 0; i < 64; i++)
		even[i] = (i * 37) % 64;
	kernel_calibration_median(even, 64, &c);
	assert_int_equal(c.tick_ns, 32); /* 31.5 */
	assert_int_equal(c.low_ns, 24);
	assert_int_equal(c.high_ns, 40);
}

/* Costs of 20 us where another sampler's interrupts made the work without ours slow. */
static void kernel_calibration__disturbed_pairs__do_not_count(void **ctx)
{
	double costs[] = {60, 61, 20, 62, 63, 64, 65, 66, 67, 68};
	uint64_t without[] = {1000, 1010, 2000, 990, 1249, 1000, 1000, 1000, 1000, 1000};
	const uint64_t slow[] = {1000, 2000, 2000, 2000, 1000, 1000, 1000, 1000, 1000, 1000};

	(void)ctx;
	assert_int_equal(kernel_calibration_keep(costs, without, 10, 1000), 9);
	assert_true(costs[2] == 62 && costs[8] == 68);
	without[9] = 1251;
	assert_int_equal(kernel_calibration_keep(costs, without, 10, 1000), 8);
	assert_int_equal(kernel_calibration_keep(costs, slow, 10, 1000), 0);
	assert_int_equal(kernel_calibration_keep(costs, slow, 0, 1000), 0);
}

/* A machine that has two figures in turns is not believed either, even between calibrations. */
static void kernel_calibration__rounds_far_apart__are_not_trusted(void **ctx)
{
	const struct kernel_calibration rounds[] = {
		{.tick_ns = 60000, .low_ns = 58000, .high_ns = 62000, .pairs = 20},
		{.tick_ns = 62000, .low_ns = 59000, .high_ns = 64000, .pairs = 30},
		{.tick_ns = 61000, .low_ns = 60000, .high_ns = 62000, .pairs = 40},
	};
	struct kernel_calibration c, later;

	(void)ctx;
	kernel_calibration_merge(rounds, 3, &c);
	assert_int_equal(c.tick_ns, 61000);
	assert_int_equal(c.low_ns, 58000);
	assert_int_equal(c.high_ns, 64000);
	assert_int_equal(c.pairs, 90);
	assert_int_equal(c.seen_low_ns, 60000);
	assert_int_equal(c.seen_high_ns, 62000);
	assert_true(kernel_calibration_is_trusted(&c));
	assert_int_equal(kernel_calibration_planned_ns(&c), 61000);
	later = c;
	later.tick_ns = later.seen_low_ns = later.seen_high_ns = 22000;
	assert_true(kernel_calibration_is_trusted(&later));
	kernel_calibration_remember(&c, &later);
	assert_false(kernel_calibration_is_trusted(&later));
	assert_int_equal(kernel_calibration_planned_ns(&later), 62000);
	later = (struct kernel_calibration){.tick_ns = 22000,
					    .seen_low_ns = 22000,
					    .seen_high_ns = 22000,
					    .machine = "another"};
	kernel_calibration_remember(&c, &later);
	assert_true(kernel_calibration_is_trusted(&later));
}

static void kernel_calibration__file__is_read_back(void **ctx)
{
	struct kernel_calibration c = some(), back;
	struct why why = {""};

	(void)ctx;
	memset(&back, 0, sizeof(back));
	assert_int_equal(kernel_calibration_read(path, &back, &why), -ENOENT);
	assert_non_null(strstr(why.text, "--calibrate"));
	for (int i = 0; i < 2; i++) { /* anew, and over what is there */
		c.tick_ns += (uint64_t)i;
		assert_int_equal(kernel_calibration_write(path, &c, &why), 0);
		assert_int_equal(kernel_calibration_read(path, &back, &why), 0);
		assert_memory_equal(&c, &back, sizeof(c));
	}
	assert_int_equal(kernel_calibration_write("/proc/none/file", &c, &why), -ENOENT);
}

static void kernel_calibration__other_machine__does_not_count(void **ctx)
{
	struct kernel_calibration c = some(), back = {.tick_ns = 7};
	struct why why = {""};

	(void)ctx;
	c.machine[0]++;
	assert_int_equal(kernel_calibration_write(path, &c, NULL), 0);
	assert_int_equal(kernel_calibration_read(path, &back, &why), -ESTALE);
	assert_int_equal(back.tick_ns, 7);
	assert_non_null(strstr(why.text, "another CPU or kernel"));
}

static void kernel_calibration__file_of_others__is_not_trusted(void **ctx)
{
	struct kernel_calibration c = some();
	char link[80];

	(void)ctx;
	assert_int_equal(kernel_calibration_write(path, &c, NULL), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(kernel_calibration_read(path, &c, NULL), -EPERM);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(kernel_calibration_read(path, &c, NULL), 0);
	if (!geteuid()) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_int_equal(kernel_calibration_read(path, &c, NULL), -EPERM);
	}
	snprintf(link, sizeof(link), "%s.link", path);
	assert_int_equal(symlink(path, link), 0);
	assert_int_equal(kernel_calibration_read(link, &c, NULL), -ELOOP);
	unlink(link);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0); /* must not wait for a writer */
	assert_int_equal(kernel_calibration_read(path, &c, NULL), -EPERM);
	unlink(path);
}

static void kernel_calibration__damaged_file__is_refused(void **ctx)
{
	static const char *const bad[] = {
		"",
		"tick_ns=1\n",
		"tick_ns=48000\nlow_ns=47000\nhigh_ns=49500\nseen_low_ns=48000\nseen_high_ns="
		"48000\npairs=40\ncpu=3\nmeasured_s=1\n",
		"tick_ns=0\nlow_ns=0\nhigh_ns=49500\nseen_low_ns=48000\nseen_high_ns=48000\npairs="
		"40\ncpu=3\nmeasured_s=1\nmachine=x\n",
		"tick_ns=48000\nlow_ns=50000\nhigh_ns=49500\nseen_low_ns=48000\nseen_high_ns="
		"48000\npairs=40\ncpu=3\nmeasured_s="
		"1\nmachine=x\n",
		"tick_ns=48000\nlow_ns=47000\nhigh_ns=47500\nseen_low_ns=48000\nseen_high_ns="
		"48000\npairs=40\ncpu=3\nmeasured_s="
		"1\nmachine=x\n",
		"tick_ns=99999999999\nlow_ns=1\nhigh_ns=2\nseen_low_ns=48000\nseen_high_ns="
		"48000\npairs=40\ncpu=3\nmeasured_s=1\nmachine="
		"x\n",
		"tick_ns=48000\nlow_ns=47000\nhigh_ns=49500\nseen_low_ns=48001\n"
		"seen_high_ns=48002\npairs=40\ncpu=3\nmeasured_s=1\nmachine=x\n",
		"tick_ns=48000\nlow_ns=47000\nhigh_ns=49500\npairs=40\ncpu=3\nmeasured_s=1\n"
		"machine=x\n",
		"tick_ns=48 "
		"000\nlow_ns=1\nhigh_ns=49500\nseen_low_ns=48000\nseen_high_ns=48000\npairs="
		"40\ncpu=3\nmeasured_s=1\nmachine=x\n",
	};
	struct kernel_calibration c;
	struct why why;

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		why.text[0] = '\0';
		write_text(bad[i]);
		assert_int_equal(kernel_calibration_read(path, &c, &why), -EBADMSG);
		assert_non_null(strstr(why.text, "damaged"));
	}
}

/* On any machine an interrupt with its event costs more than 200 ns and less than a millisecond. */
static void kernel_calibrate__this_machine__has_a_plausible_cost(void **ctx)
{
	struct kernel_calibration c = {0};
	struct why why = {""};
	int err;

	(void)ctx;
	if (geteuid())
		skip();
	err = kernel_calibrate(&c, &why);
	/* Too much else may run; then it says so and gives no figure. */
	if (err == -EBUSY) {
		assert_true(why.text[0]);
		assert_int_equal(c.tick_ns, 0);
		return;
	}
	if (err)
		fail_msg("%s", why.text);
	assert_in_range(c.tick_ns, 200, 1000000);
	assert_true(c.low_ns <= c.tick_ns && c.tick_ns <= c.high_ns);
	assert_true(c.seen_low_ns <= c.tick_ns && c.tick_ns <= c.seen_high_ns);
	assert_in_range(c.pairs, 24, 180);
	assert_true(c.machine[0]);
}

/* ---------------------------------------------------------------- the outside judge */
#define JUDGE_PAIRS 15

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* CPU time of the same work, whoever else has the CPU in between. */
static uint64_t work_cpu_ns(void)
{
	uint64_t start = thread_cpu_ns();

	for (uint32_t i = 0; i < 40000000; i++)
		__asm__ volatile("" ::: "memory");
	return thread_cpu_ns() - start;
}

/* What a tick of the real sampling costs a program on this CPU, without the program's own time:
 * the median of pairs. */
static double judge_ns(void)
{
	struct kernel_calibration c = {0};
	struct kernel_options options;
	struct kernel_ledger before, after;
	double costs[JUDGE_PAIRS];
	struct kernel *kernel;
	uint64_t with, without, ticks;

	kernel_options_init(&options);
	options.hz = 4999;
	assert_int_equal(kernel_open(&options, &kernel, NULL), 0);
	for (int i = 0; i < JUDGE_PAIRS; i++) {
		without = work_cpu_ns();
		assert_int_equal(kernel_ledger_get(kernel, &before), 0);
		assert_int_equal(kernel_start(kernel, NULL), 0);
		with = work_cpu_ns();
		kernel_stop(kernel);
		assert_int_equal(kernel_ledger_get(kernel, &after), 0);
		/* By time, not by count: the ledger has those of all CPUs. */
		ticks = with * options.hz / 1000000000;
		costs[i] =
			((double)with - (double)without) / (double)ticks -
			(double)(after.run_ns - before.run_ns) / (double)(after.runs - before.runs);
	}
	kernel_close(kernel);
	kernel_calibration_median(costs, JUDGE_PAIRS, &c);
	return (double)c.tick_ns;
}

/* A machine may change between two measurements: the judge measures before and after. */
static void kernel_calibrate__outside_spinner__agrees(void **ctx)
{
	struct kernel_calibration c = {0};
	double before, after;
	int err;

	(void)ctx;
	if (geteuid())
		skip();
	before = judge_ns();
	err = kernel_calibrate(&c, NULL);
	after = judge_ns();
	print_message("%d: %" PRIu64 " ns by calibration, %.0f and %.0f by the judge\n", err,
		      c.tick_ns, before, after);
	if (err == -EBUSY)
		return; /* it says so, and gives no figure */
	assert_int_equal(err, 0);
	assert_true((double)c.tick_ns > 0.67 * (before < after ? before : after));
	assert_true((double)c.tick_ns < 1.5 * (before > after ? before : after));
}

/* Their interrupts take ours along, and ours would seem to cost a third: no figure, or the right
 * one.
 */
static void kernel_calibrate__beside_fast_samplers__is_not_fooled(void **ctx)
{
	struct kernel_calibration alone = {0}, beside = {0};
	struct kernel_options options;
	struct kernel *samplers[2];
	struct why why = {""};
	int err;

	(void)ctx;
	if (geteuid())
		skip();
	kernel_options_init(&options);
	options.hz = 10000;
	err = kernel_calibrate(&alone, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(samplers); i++) {
		if (kernel_open(&options, &samplers[i], &why) || kernel_start(samplers[i], &why))
			fail_msg("%s", why.text);
	}
	if (!err)
		err = kernel_calibrate(&beside, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(samplers); i++)
		kernel_close(samplers[i]);
	print_message("%d: %" PRIu64 " ns alone, %" PRIu64 " beside\n", err, alone.tick_ns,
		      beside.tick_ns);
	if (err == -EBUSY)
		return;
	assert_int_equal(err, 0);
	assert_true(beside.tick_ns * 4 > alone.tick_ns * 3);
	assert_true(beside.tick_ns * 3 < alone.tick_ns * 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernel_calibration__median__has_its_interval),
		cmocka_unit_test(kernel_calibration__disturbed_pairs__do_not_count),
		cmocka_unit_test(kernel_calibration__rounds_far_apart__are_not_trusted),
		cmocka_unit_test(kernel_calibration__file__is_read_back),
		cmocka_unit_test(kernel_calibration__other_machine__does_not_count),
		cmocka_unit_test(kernel_calibration__file_of_others__is_not_trusted),
		cmocka_unit_test(kernel_calibration__damaged_file__is_refused),
		cmocka_unit_test(kernel_calibrate__this_machine__has_a_plausible_cost),
		cmocka_unit_test(kernel_calibrate__outside_spinner__agrees),
		cmocka_unit_test(kernel_calibrate__beside_fast_samplers__is_not_fooled),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
