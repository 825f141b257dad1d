// SPDX-License-Identifier: Apache-2.0
/* config: a configuration's life, its sources beside the file, and what differs between two. */
#include "config_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STRINGS_MAX_BYTES (1 << 20)
#define VALUE_MAX_BYTES	  (1 << 20)

/* ---------------------------------------------------------------- report */
void config_say(char *out, size_t out_size, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_print(text, strlen(text), out, out_size);
}

struct config_finding *config_report_add(struct config_report *report, struct config_place place,
					 const char *key, const char *directive)
{
	struct config_finding *f = &report->findings[report->count];

	*f = (struct config_finding){.place = place, .directive = directive};
	text_print(key, strlen(key), f->key, sizeof(f->key));
	report->error_count++;
	if (report->count < CONFIG_FINDINGS_MAX)
		report->count++;
	report->is_full = report->count == CONFIG_FINDINGS_MAX;
	return f;
}

struct config_finding *config_report_note(struct config_report *report, struct config_place place,
					  const char *key)
{
	struct config_finding *f = config_report_add(report, place, key, "");

	f->is_note = true;
	report->error_count--;
	return f;
}

static int compare(const void *a, const void *b)
{
	const struct config_finding *x = a, *y = b;

	if (x->place.source != y->place.source)
		return x->place.source < y->place.source ? -1 : 1;
	if (x->place.line != y->place.line)
		return x->place.line < y->place.line ? -1 : 1;
	if (x->place.column != y->place.column)
		return x->place.column < y->place.column ? -1 : 1;
	return strcmp(x->directive, y->directive);
}

void config_report_sort(struct config_report *report)
{
	qsort(report->findings, report->count, sizeof(report->findings[0]), compare);
}

/* ---------------------------------------------------------------- life */
struct config_place *config_place_at(struct config *config, struct config_target *target,
				     const struct config_key *key)
{
	if (config_key_is_of_target(key))
		return &target->places[config_key_index(key) -
				       config_key_index(config_key_find("export.targets")) - 1];
	return &config->places[config_key_index(key)];
}

struct config_place config_place_of(const struct config *config, const struct config_key *key,
				    uint32_t target)
{
	struct config *c = (struct config *)config;

	return *config_place_at(c, &c->targets[target], key);
}

/* Of the config, or of one target. */
static int set_defaults(struct config *config, struct config_target *target)
{
	struct config_report *report = mem_alloc(MEM_CONFIG, sizeof(*report));
	void *base = target ? (void *)target : config;
	const struct config_key *key;
	int err = report ? 0 : -ENOMEM;

	for (size_t i = 0; !err && (key = config_key_get(i)); i++) {
		struct config_word word = {.text = key->normal};

		if (config_key_is_of_target(key) != !!target || !key->normal ||
		    key->type == CONFIG_HEADERS)
			continue;
		word.len = strlen(word.text);
		err = config_value_set(config, base, key, &word, report);
	}
	if (!err && report->error_count)
		err = -EINVAL; /* the table contradicts itself */
	mem_free(MEM_CONFIG, report);
	return err;
}

int config_target_init(struct config *config, struct config_target *target)
{
	*target = (struct config_target){0};
	return set_defaults(config, target);
}

int config_new(struct config **ret)
{
	struct config *config = mem_alloc(MEM_CONFIG, sizeof(*config));
	int err;

	if (!config)
		return -ENOMEM;
	err = strings_new(MEM_CONFIG, STRINGS_MAX_BYTES, &config->strings);
	if (!err)
		err = set_defaults(config, NULL);
	if (err)
		config_free(config);
	else
		*ret = config;
	return err;
}

void config_free(struct config *config)
{
	const struct config_key *key;

	if (!config)
		return;
	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (!config_key_is_of_target(key))
			config_value_clear(config, key);
		else
			for (uint32_t t = 0; t < config->target_count; t++)
				config_value_clear(&config->targets[t], key);
	}
	strings_free(config->strings);
	mem_free(MEM_CONFIG, config);
}

/* ---------------------------------------------------------------- environment and flags */
static int set_named(struct config *config, const struct config_key *key, const char *value,
		     enum config_source source, const char *name, struct config_report *report)
{
	int64_t id = strings_add_str(config->strings, name);
	struct config_word word = {
		.text = value, .len = strlen(value), .place = {.source = source}};

	if (id < 0)
		return (int)id;
	word.place.name = strings_get(config->strings, (uint32_t)id);
	return config_value_set(config, config, key, &word, report);
}

int config_set(struct config *config, const char *key, const char *value, const char *flag,
	       struct config_report *report)
{
	return set_named(config, config_key_find(key), value, CONFIG_FLAG, flag, report);
}

/* FLYBALL_STORE_MAXBYTES for FLYBALL_STORE_MAX_BYTES: by the letters alone. Others, such as those
 * that Kubernetes makes for a service called flyball, are left alone. */
static bool is_near(const char *name, size_t len, const char *variable)
{
	const char *end = name + len;

	for (; name < end || *variable; name++, variable++) {
		while (name < end && *name == '_')
			name++;
		while (*variable == '_')
			variable++;
		if (name >= end || !*variable)
			break;
		if (toupper((unsigned char)*name) != toupper((unsigned char)*variable))
			return false;
	}
	return name >= end && !*variable;
}

static void note_variable(const char *name, size_t len, struct config_report *report)
{
	const struct config_key *key;
	char variable[CONFIG_NAME_MAX], text[CONFIG_NAME_MAX];
	struct config_finding *f;

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (!config_key_variable(key, variable) || !is_near(name, len, variable))
			continue;
		text_print(name, len, text, sizeof(text));
		f = config_report_note(report, (struct config_place){.source = CONFIG_ENVIRONMENT},
				       text);
		config_say(f->problem, sizeof(f->problem), "there is no such variable");
		config_say(f->fix, sizeof(f->fix), "write %s", variable);
		return;
	}
}

static const struct config_key *find_variable(const char *name, size_t len)
{
	const struct config_key *key;
	char variable[CONFIG_NAME_MAX];

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (config_key_variable(key, variable) && strlen(variable) == len &&
		    !memcmp(variable, name, len))
			return key;
	}
	return NULL;
}

int config_read_environment(struct config *config, char *const *variables,
			    struct config_report *report)
{
	const struct config_key *key;
	char name[CONFIG_NAME_MAX];
	const char *value;
	size_t len;
	int err = 0;

	for (; !err && *variables; variables++) {
		value = strchr(*variables, '=');
		if (!value || strncmp(*variables, "FLYBALL_", 8) != 0)
			continue;
		len = (size_t)(value++ - *variables);
		key = find_variable(*variables, len);
		if (!key) {
			note_variable(*variables, len, report);
			continue;
		}
		config_key_variable(key, name);
		err = set_named(config, key, value, CONFIG_ENVIRONMENT, name, report);
	}
	return err;
}

/* ---------------------------------------------------------------- changes */
/* Headers with their values, which config_value_print hides. */
static bool is_same_list(const struct config_list *a, const struct config_list *b)
{
	if (a->count != b->count)
		return false;
	for (uint32_t i = 0; i < a->count; i++) {
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	}
	return true;
}

static bool is_same(const struct config *a, const struct config *b, const struct config_key *key,
		    uint32_t target)
{
	struct buf x, y;
	bool same;

	buf_init(&x, MEM_CONFIG, VALUE_MAX_BYTES);
	buf_init(&y, MEM_CONFIG, VALUE_MAX_BYTES);
	config_value_print(a, key, target, &x);
	config_value_print(b, key, target, &y);
	same = !x.err && !y.err && x.len == y.len && (!x.len || !memcmp(x.data, y.data, x.len));
	buf_done(&x);
	buf_done(&y);
	return same;
}

static bool is_same_target(const struct config *a, const struct config *b, uint32_t target)
{
	const struct config_key *key;

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (config_key_is_of_target(key) && !is_same(a, b, key, target))
			return false;
	}
	return is_same_list(&a->targets[target].headers, &b->targets[target].headers);
}

static bool is_same_targets(const struct config *a, const struct config *b)
{
	if (a->target_count != b->target_count)
		return false;
	for (uint32_t t = 0; t < a->target_count; t++) {
		if (!is_same_target(a, b, t))
			return false;
	}
	return true;
}

size_t config_changes(const struct config *old, const struct config *new,
		      const struct config_key **ret_keys, size_t max)
{
	const struct config_key *key;
	size_t count = 0;
	bool same;

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (config_key_is_of_target(key))
			continue;
		same = config_key_is_targets(key) ? is_same_targets(old, new)
						  : is_same(old, new, key, 0);
		if (!same && count++ < max)
			ret_keys[count - 1] = key;
	}
	return count;
}
