// SPDX-License-Identifier: Apache-2.0
/*
 * scenario: the text of a simulation. Line by line, word by word; a word it does not know, a value
 * out of range or a line too long is an error that names the line.
 */
#include "governor/governor_sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512
#define CLOCK_MOST_S   86400

enum kind { NUMBER, SHARE, TIME, BYTES };

static const struct {
	const char *name;
	enum kind kind;
	double least, most, normal;
} keys[SIM_KEYS] = {
	[SIM_CPUS] = {"cpus", NUMBER, 1, 4096, 4},
	[SIM_LOAD] = {"load", SHARE, 0, 1, 0.3},
	[SIM_NOISE] = {"noise", SHARE, 0, 0.5, 0.03},
	[SIM_TICK] = {"tick", TIME, 0, 0.01, 5e-6},
	[SIM_WALK] = {"walk", TIME, 0, 0.01, 5e-6},
	[SIM_FRAME] = {"frame", TIME, 0, 0.001, 2e-7},
	[SIM_STACK] = {"stack", NUMBER, 1, 10000, 40},
	[SIM_READ] = {"read", TIME, 0, 0.01, 1e-5},
	[SIM_LOOP] = {"loop", TIME, 0, 1, 5e-4},
	[SIM_LINES] = {"lines", SHARE, 0, 100, 0},
	[SIM_BUILDS] = {"builds", SHARE, 0, 100, 0},
	[SIM_OFF_CPU] = {"off_cpu", SHARE, 0, 100, 0},
	[SIM_NAMES] = {"names", SHARE, 0, 100, 0},
	[SIM_DRAIN] = {"drain", NUMBER, 0, 1e9, 1e6},
	[SIM_LOOP_STALL] = {"loop_stall", NUMBER, 0, 1, 0},
	[SIM_PRESSURE_SOME] = {"pressure_some", SHARE, 0, 1, 0},
	[SIM_PRESSURE_FULL] = {"pressure_full", SHARE, 0, 1, 0},
};

void governor_scenario_init(struct governor_scenario *s)
{
	memset(s, 0, sizeof(*s));
	governor_config_init(&s->config);
	s->config.memory_budget_bytes = 64 << 20;
	s->config.table_budget_bytes = 48 << 20;
	s->ring_bytes = 1 << 20;
	s->table_bytes = 16 << 20;
	s->end_s = 60;
	s->seed = 1;
	for (int i = 0; i < SIM_KEYS; i++)
		s->start[i] = keys[i].normal;
}

/* "48us", "5ms", "10s"; a bare number is seconds. */
static int parse_time(const char *text, double *ret)
{
	static const struct {
		const char *unit;
		double seconds;
	} units[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
	char *end;
	double value = strtod(text, &end);

	for (size_t i = 0; end != text && i < ARRAY_SIZE(units); i++) {
		if (!strcmp(end, units[i].unit)) {
			*ret = value * units[i].seconds;
			return 0;
		}
	}
	return -EBADMSG;
}

static int parse_value(const char *text, enum kind kind, double *ret)
{
	uint64_t bytes;
	char *end;
	int err;

	if (kind == TIME)
		return parse_time(text, ret);
	if (kind == BYTES) {
		err = text_parse_bytes(text, &bytes);
		*ret = (double)bytes;
		return err ? -EBADMSG : 0;
	}
	*ret = strtod(text, &end);
	if (end != text && kind == SHARE && !strcmp(end, "%"))
		*ret /= 100;
	else if (end == text || *end)
		return -EBADMSG;
	return 0;
}

/* Splits "key=value" in place. */
static int split(char *word, const char **ret_value)
{
	char *equal = strchr(word, '=');

	if (!equal || equal == word || !equal[1])
		return -EBADMSG;
	*equal = '\0';
	*ret_value = equal + 1;
	return 0;
}

static int parse_condition(char *word, enum governor_sim_key *ret_key, double *ret_value,
			   struct why *why)
{
	const char *text;
	double value;

	if (split(word, &text))
		return why_set(why, -EBADMSG, "%.60s is no key=value", word);
	for (int i = 0; i < SIM_KEYS; i++) {
		if (strcmp(word, keys[i].name))
			continue;
		if (parse_value(text, keys[i].kind, &value))
			return why_set(why, -EBADMSG, "%s=%.60s is no value for it", word, text);
		if (!(value >= keys[i].least && value <= keys[i].most))
			return why_set(why, -ERANGE, "%s=%.60s is not within %g and %g", word, text,
				       keys[i].least, keys[i].most);
		*ret_key = (enum governor_sim_key)i;
		*ret_value = value;
		return 0;
	}
	return why_set(why, -EBADMSG, "a node has no %.60s", word);
}

static int parse_features(const char *text, uint32_t *ret)
{
	static const struct {
		const char *name;
		uint32_t bit;
	} names[] = {{"lines", GOVERNOR_LINES},
		     {"builds", GOVERNOR_TABLE_BUILDS},
		     {"off_cpu", GOVERNOR_OFF_CPU}};
	uint32_t features = 0;
	size_t i, len;

	if (!strcmp(text, "none")) {
		*ret = 0;
		return 0;
	}
	for (;; text += len + 1) {
		len = strcspn(text, ",");
		for (i = 0; i < ARRAY_SIZE(names); i++) {
			if (strlen(names[i].name) == len && !memcmp(names[i].name, text, len))
				break;
		}
		if (i == ARRAY_SIZE(names))
			return -EBADMSG;
		features |= names[i].bit;
		if (!text[len])
			break;
	}
	*ret = features;
	return 0;
}

/* One of two words. */
static int parse_choice(const char *text, const char *yes, const char *no, bool *ret)
{
	*ret = !strcmp(text, yes);
	return *ret || !strcmp(text, no) ? 0 : -EBADMSG;
}

static int set_words(struct governor_scenario *s, const char *key, const char *text)
{
	struct governor_config *c = &s->config;
	bool is_yes = false;
	int err;

	if (!strcmp(key, "features"))
		return parse_features(text, &c->features);
	if (!strcmp(key, "unwinder")) {
		err = parse_choice(text, "tables", "fp", &is_yes);
		c->unwinder = is_yes ? GOVERNOR_TABLES : GOVERNOR_FRAME_POINTERS;
		return err;
	}
	if (!strcmp(key, "tiers"))
		return parse_choice(text, "on", "off", &c->has_tiers);
	if (!strcmp(key, "strict"))
		return parse_choice(text, "on", "off", &c->is_strict);
	return -ENOENT;
}

static int set_number(struct governor_scenario *s, const char *key, const char *text)
{
	struct governor_config *c = &s->config;
	const struct {
		const char *name;
		enum kind kind;
		double least, most, scale;
		uint32_t *to;
		uint64_t *to64;
	} numbers[] = {
		{"budget", SHARE, 0, 1, 1e6, &c->cpu_budget_ppm, NULL},
		{"hz", NUMBER, 0, 1e6, 1, &c->hz, NULL},
		{"depth", NUMBER, 0, 1e5, 1, &c->depth, NULL},
		{"floor", NUMBER, 0, 1e6, 1, &c->hz_floor, NULL},
		{"min", NUMBER, 0, 1e6, 1, &c->hz_min, NULL},
		{"calibrated", TIME, 0, 1, 1e9, NULL, &c->tick_cost_ns},
		{"memory", BYTES, 0, 1e15, 1, NULL, &c->memory_budget_bytes},
		{"table_budget", BYTES, 0, 1e15, 1, NULL, &c->table_budget_bytes},
		{"tables", BYTES, 0, 1e15, 1, NULL, &s->table_bytes},
		{"ring", BYTES, 4096, 1 << 30, 1, NULL, &s->ring_bytes},
		{"seed", NUMBER, 0, 4e9, 1, NULL, &s->seed},
	};
	double value = 0;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		if (strcmp(key, numbers[i].name))
			continue;
		if (parse_value(text, numbers[i].kind, &value))
			return -EBADMSG;
		if (!(value >= numbers[i].least && value <= numbers[i].most))
			return -ERANGE;
		value = value * numbers[i].scale + 0.5;
		if (numbers[i].to)
			*numbers[i].to = (uint32_t)value;
		else
			*numbers[i].to64 = (uint64_t)value;
		return 0;
	}
	return -ENOENT;
}

static int parse_set(struct governor_scenario *s, char *word, struct why *why)
{
	const char *text;
	int err;

	if (split(word, &text))
		return why_set(why, -EBADMSG, "%.60s is no key=value", word);
	err = set_words(s, word, text);
	if (err == -ENOENT)
		err = set_number(s, word, text);
	if (err == -ENOENT)
		return why_set(why, -EBADMSG, "there is no setting %.60s", word);
	return err ? why_set(why, err, "%s=%.60s is no value for it", word, text) : 0;
}

static int take_time(char **save, double *ret, struct why *why)
{
	const char *word = strtok_r(NULL, " \t", save);

	if (!word || parse_time(word, ret) || !(*ret >= 0 && *ret <= CLOCK_MOST_S))
		return why_set(why, -EBADMSG, "%.60s is no time within a day",
			       word ? word : "nothing");
	return 0;
}

static int parse_at(struct governor_scenario *s, char **save, struct why *why)
{
	struct governor_sim_change change = {0};
	char *word;
	int err = take_time(save, &change.at_s, why);

	while (!err && (word = strtok_r(NULL, " \t", save))) {
		if (!strcmp(word, "over")) {
			err = take_time(save, &change.over_s, why);
			continue;
		}
		err = parse_condition(word, &change.key, &change.value, why);
		if (!err && s->change_count == SIM_CHANGES_MAX)
			err = why_set(why, -ERANGE, "more than %d changes", SIM_CHANGES_MAX);
		if (!err && s->change_count && s->changes[s->change_count - 1].at_s > change.at_s)
			err = why_set(why, -EBADMSG, "it comes before the line above");
		if (!err)
			s->changes[s->change_count++] = change;
	}
	return err;
}

static int parse_line(struct governor_scenario *s, char *line, struct why *why)
{
	enum governor_sim_key key = SIM_CPUS;
	char *save, *verb = strtok_r(line, " \t", &save), *word;
	double value = 0;
	int err = 0;

	if (!verb)
		return 0;
	if (!strcmp(verb, "title")) {
		save += strspn(save, " \t");
		text_print(save, strlen(save), s->title, sizeof(s->title));
		return 0;
	}
	if (!strcmp(verb, "end"))
		return take_time(&save, &s->end_s, why);
	if (!strcmp(verb, "at"))
		return parse_at(s, &save, why);
	if (strcmp(verb, "set") && strcmp(verb, "node"))
		return why_set(why, -EBADMSG, "%.60s is none of title, set, node, at, end", verb);
	while (!err && (word = strtok_r(NULL, " \t", &save))) {
		if (*verb == 's') {
			err = parse_set(s, word, why);
			continue;
		}
		err = parse_condition(word, &key, &value, why);
		if (!err)
			s->start[key] = value;
	}
	return err;
}

int governor_scenario_parse(const char *text, struct governor_scenario *ret, struct why *why)
{
	unsigned int number = 0;
	char line[LINE_MAX_BYTES];
	size_t len;
	int err;

	governor_scenario_init(ret);
	for (; *text; text += len + (text[len] == '\n')) {
		size_t used;

		len = strcspn(text, "\n");
		number++;
		used = len;
		if (memchr(text, '#', len))
			used = (size_t)((const char *)memchr(text, '#', len) - text);
		if (used >= sizeof(line))
			return why_set(why, -ERANGE, "line %u has more than %d bytes", number,
				       LINE_MAX_BYTES - 1);
		memcpy(line, text, used);
		line[used] = '\0';
		while (used && (line[used - 1] == '\r' || line[used - 1] == ' '))
			line[--used] = '\0';
		err = parse_line(ret, line, why);
		if (err) {
			why_prefix(why, "line %u", number);
			return err;
		}
	}
	err = governor_config_check(&ret->config, why);
	return err == -EINVAL ? -EBADMSG : err;
}
