// SPDX-License-Identifier: Apache-2.0
/* flyball doctor: what this machine can do, one sentence each. */
#include "cli.h"

#include <argp.h>
#include <errno.h>
#include <jansson.h>

#include "agent/agent.h"
#include "kernel/kernel_calibrate.h"

enum { KEY_JSON = 256, KEY_CALIBRATE, KEY_CALIBRATION };

struct parsed {
	bool json, calibrate;
	const char *file; /* of the calibration */
};

static const struct argp_option doctor_options[] = {
	{"calibrate", KEY_CALIBRATE, NULL, 0,
	 "Measure what an interrupt of the sample clock costs here, for half a second on one CPU, "
	 "and keep it",
	 0},
	{"calibration", KEY_CALIBRATION, "FILE", 0,
	 "Where that is kept (default " KERNEL_CALIBRATION_FILE ")", 0},
	{"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
	{"verbose", 'v', NULL, 0, "Show the probes' own messages", 0},
	{0},
};

static error_t doctor_parse(int key, char *arg, struct argp_state *state)
{
	struct parsed *p = state->input;

	switch (key) {
	case KEY_JSON:
		p->json = true;
		return 0;
	case KEY_CALIBRATE:
		p->calibrate = true;
		return 0;
	case KEY_CALIBRATION:
		p->file = arg;
		return 0;
	case 'v':
		log_set_level(LOG_DEBUG);
		return 0;
	case ARGP_KEY_ARG:
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp doctor_argp = {
	.options = doctor_options,
	.parser = doctor_parse,
	.doc = "Says whether this machine can run flyball, and if not, why and what to do.\v"
	       "Exit status: 0 it can, 3 it cannot.",
};

/* What the machine's ticks cost: measured now, or as measured before. */
struct ticks {
	struct kernel_calibration known;
	struct why why; /* when it is not */
	int err;
};

static void look_at_ticks(const struct parsed *p, struct ticks *t)
{
	struct kernel_calibration before;

	if (!p->calibrate) {
		t->err = kernel_calibration_read(p->file, &t->known, &t->why);
		return;
	}
	t->err = kernel_calibrate(&t->known, &t->why);
	if (!t->err && !kernel_calibration_read(p->file, &before, NULL))
		kernel_calibration_remember(&before, &t->known);
	if (!t->err)
		t->err = kernel_calibration_write(p->file, &t->known, &t->why);
}

static json_t *json_ticks(const struct ticks *t)
{
	const struct kernel_calibration *c = &t->known;

	if (t->err)
		return json_null();
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:I,s:I,s:s}", "tick_ns",
			 (json_int_t)c->tick_ns, "low_ns", (json_int_t)c->low_ns, "high_ns",
			 (json_int_t)c->high_ns, "seen_low_ns", (json_int_t)c->seen_low_ns,
			 "seen_high_ns", (json_int_t)c->seen_high_ns, "is_trusted",
			 kernel_calibration_is_trusted(c), "pairs", (json_int_t)c->pairs, "cpu",
			 (json_int_t)c->cpu, "measured_s", (json_int_t)c->measured_s, "machine",
			 c->machine);
}

static int print_json(const struct kernel_check *checks, size_t count, bool can_run,
		      const struct ticks *ticks)
{
	static const char *const levels[] = {"fine", "note", "warning", "blocker"};
	json_t *list = json_array(), *o;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "name", checks[i].name,
						      "level", levels[checks[i].level & 3], "text",
						      checks[i].text));
	o = json_pack("{s:b,s:o,s:o,s:s?}", "can_run", can_run, "checks", list, "calibration",
		      json_ticks(ticks), "calibration_unknown",
		      ticks->err ? ticks->why.text : NULL);
	if (!o || json_dumpf(o, stdout, JSON_COMPACT))
		return -EIO;
	json_decref(o);
	putchar('\n');
	return 0;
}

static void print_text(const struct kernel_check *checks, size_t count, bool can_run,
		       const struct ticks *ticks)
{
	static const char *const marks[] = {"ok  ", "note", "WARN", "FAIL"};
	const struct kernel_calibration *c = &ticks->known;

	for (size_t i = 0; i < count; i++)
		printf("%s  %-18s %s\n", marks[checks[i].level & 3], checks[i].name,
		       checks[i].text);
	if (ticks->err)
		printf("note  %-18s %s\n", "calibration", ticks->why.text);
	else
		printf("ok    %-18s an interrupt of the sample clock costs %.2f us (%.2f to %.2f), "
		       "%.3f %% of each CPU at 99 Hz\n",
		       "calibration", (double)c->tick_ns / 1e3, (double)c->low_ns / 1e3,
		       (double)c->high_ns / 1e3, (double)c->tick_ns * 99 / 1e7);
	if (!ticks->err && !kernel_calibration_is_trusted(c))
		printf("note  %-18s that figure is not to be trusted: %.2f to %.2f us were seen "
		       "here, and a budget is planned with the dearest\n",
		       "calibration", (double)c->seen_low_ns / 1e3, (double)c->seen_high_ns / 1e3);
	puts(can_run ? "flyball can run here." : "flyball cannot run here: see FAIL above.");
}

int cli_doctor(int argc, char **argv)
{
	static struct kernel_check checks[KERNEL_CHECKS_MAX];
	struct parsed p = {.file = KERNEL_CALIBRATION_FILE};
	static struct ticks ticks;
	bool can_run = true;
	size_t count;
	int status;

	if (!cli_parse("doctor", &doctor_argp, argc, argv, 0, &p, NULL, &status))
		return status;
	count = kernel_doctor(checks);
	for (size_t i = 0; i < count; i++)
		can_run = can_run && checks[i].level < 3;
	look_at_ticks(&p, &ticks);
	if (!p.json)
		print_text(checks, count, can_run, &ticks);
	else if (print_json(checks, count, can_run, &ticks))
		return AGENT_EXIT_FAILED;
	if (!can_run)
		return AGENT_EXIT_UNSUPPORTED;
	if (!p.calibrate || !ticks.err)
		return AGENT_EXIT_DONE;
	log_error("not calibrated: %s", ticks.why.text);
	return ticks.err == -EPERM || ticks.err == -EACCES ? AGENT_EXIT_UNSUPPORTED
							   : AGENT_EXIT_FAILED;
}
