// SPDX-License-Identifier: Apache-2.0
/* cli_agent_print: findings and values, for people and for programs. */
#include "cli_agent.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "agent/agent.h"

#define VALUE_MAX_BYTES (1 << 20)

static const char *const sources[] = {
	[CONFIG_DEFAULT] = "default",
	[CONFIG_FILE] = "file",
	[CONFIG_ENVIRONMENT] = "environment",
	[CONFIG_FLAG] = "flag",
};

/* "node.yaml:7:19", "environment FLYBALL_X", "flag --store", "default". */
static void print_place(const struct config_place *place, const char *file, char *out, size_t size)
{
	if (place->source == CONFIG_FILE)
		snprintf(out, size, "%s:%u:%u", file, place->line, place->column);
	else if (place->name)
		snprintf(out, size, "%s %s", sources[place->source], place->name);
	else
		snprintf(out, size, "%s", sources[place->source]);
}

void cli_agent_print_findings(const char *file, const struct config_report *report)
{
	const struct config_finding *f;
	char place[640];

	for (size_t i = 0; i < report->count; i++) {
		f = &report->findings[i];
		if (f->place.source == CONFIG_DEFAULT)
			snprintf(place, sizeof(place), "%s", file);
		else
			print_place(&f->place, file, place, sizeof(place));
		fprintf(stderr, "%s: %s%s%s%s", place, f->key, *f->key ? ": " : "",
			f->is_note ? "note: " : "", f->problem);
		if (*f->directive)
			fprintf(stderr, " [%s]", f->directive);
		if (*f->fix)
			fprintf(stderr, ". Fix: %s", f->fix);
		fputc('\n', stderr);
	}
	if (report->is_full)
		fprintf(stderr, "%s: there may be more: reading stopped here\n", file);
}

/* ---------------------------------------------------------------- JSON */
static void set_place(json_t *o, const struct config_place *place)
{
	json_object_set_new(o, "source", json_string(sources[place->source]));
	json_object_set_new(o, "line",
			    place->source == CONFIG_FILE ? json_integer(place->line) : json_null());
	json_object_set_new(o, "column",
			    place->source == CONFIG_FILE ? json_integer(place->column)
							 : json_null());
	json_object_set_new(o, "name", place->name ? json_string(place->name) : json_null());
}

static void dump(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

static json_t *json_finding(const struct config_finding *f)
{
	json_t *o = json_pack("{s:s,s:s,s:s,s:s}", "key", f->key, "directive", f->directive,
			      "problem", f->problem, "fix", f->fix);

	set_place(o, &f->place);
	return o;
}

void cli_agent_print_check_json(const char *file, const struct config_report *report)
{
	json_t *errors = json_array(), *notes = json_array();

	for (size_t i = 0; i < report->count; i++)
		json_array_append_new(report->findings[i].is_note ? notes : errors,
				      json_finding(&report->findings[i]));
	dump(json_pack("{s:s,s:b,s:b,s:o,s:o}", "file", file, "is_right", !report->error_count,
		       "is_all", !report->is_full, "errors", errors, "notes", notes));
}

static json_t *json_key(const struct config *config, const struct config_key *key, uint32_t target)
{
	struct config_place place = config_place_of(config, key, target);
	char variable[CONFIG_NAME_MAX], path[CONFIG_NAME_MAX];
	const char *bracket = strchr(config_key_path(key), '[');
	struct buf value;
	json_t *o;

	if (bracket)
		snprintf(path, sizeof(path), "%.*s[%u%s", (int)(bracket - config_key_path(key)),
			 config_key_path(key), target, bracket + 1);
	else
		snprintf(path, sizeof(path), "%s", config_key_path(key));
	buf_init(&value, MEM_CONFIG, VALUE_MAX_BYTES);
	config_value_print(config, key, target, &value);
	o = json_pack("{s:s,s:s?,s:s?,s:s?,s:b}", "key", path, "value",
		      value.len ? value.data : NULL, "variable",
		      config_key_variable(key, variable) ? variable : NULL, "note",
		      config_key_note(key), "is_live", config_key_is_live(key));
	set_place(o, &place);
	buf_done(&value);
	return o;
}

void cli_agent_print_config_json(const struct cli_agent_shown *shown)
{
	const struct config_key *key;
	json_t *list = json_array(), *machine;

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (config_key_is_targets(key))
			continue;
		for (uint32_t t = 0;
		     t < (config_key_is_of_target(key) ? shown->config->target_count : 1); t++)
			json_array_append_new(list, json_key(shown->config, key, t));
	}
	if (shown->kernel)
		machine = json_pack("{s:b,s:I}", "fits", 1, "table_bytes",
				    (json_int_t)shown->kernel->table_bytes);
	else
		machine = json_pack("{s:b,s:s}", "fits", 0, "why", shown->why);
	dump(json_pack("{s:s,s:o,s:o}", "file", shown->file, "keys", list, "machine", machine));
}

/* ---------------------------------------------------------------- YAML */
struct writer {
	const struct cli_agent_shown *shown;
	const char *before; /* path of the line before: what sections are open */
};

static void indent(int depth)
{
	printf("%*s", 2 * depth, "");
}

/* Opens the sections of path that the line before was not in. Returns where its last part starts.
 */
static const char *open_sections(struct writer *w, const char *path, int depth, int *ret_depth)
{
	const char *part = path, *dot, *before = w->before;
	bool is_open = before;

	for (; (dot = strchr(part, '.')); part = dot + 1, depth++) {
		size_t n = (size_t)(dot - path) + 1;

		is_open = is_open && !strncmp(before, path, n);
		if (is_open)
			continue;
		indent(depth);
		printf("%.*s:\n", (int)(dot - part), part);
	}
	w->before = path;
	*ret_depth = depth;
	return part;
}

static void print_comment(struct writer *w, const struct config_key *key, uint32_t target, int used)
{
	struct config_place place = config_place_of(w->shown->config, key, target);
	const struct kernel_options *kernel = w->shown->kernel;
	char text[640], size[32];

	print_place(&place, w->shown->file, text, sizeof(text));
	printf("%*s # %s", used < 44 ? 44 - used : 0, "", text);
	if (config_key_note(key) && place.source != CONFIG_DEFAULT)
		printf("; %s", config_key_note(key));
	if (!strcmp(config_key_path(key), "ebpf.unwindTableAllocationBytes") && kernel)
		printf("; on this machine tables get %s",
		       text_bytes(kernel->table_bytes, size, sizeof(size)));
	putchar('\n');
}

static void print_line(struct writer *w, const struct config_key *key, uint32_t target)
{
	const char *path = config_key_path(key), *part;
	bool is_of_target = config_key_is_of_target(key);
	struct buf value;
	int depth = 0, used;

	if (is_of_target)
		path = strchr(path, ']') + 2;
	part = open_sections(w, path, is_of_target ? 3 : 0, &depth);
	buf_init(&value, MEM_CONFIG, VALUE_MAX_BYTES);
	config_value_print(w->shown->config, key, target, &value);
	if (value.len)
		used = printf("%*s%s: %s", 2 * depth, "", part, value.data);
	else
		used = printf("%*s# %s:", 2 * depth, "", part);
	buf_done(&value);
	print_comment(w, key, target, used);
}

static void print_targets(struct writer *w, const struct config_key *targets)
{
	const struct config *config = w->shown->config;
	const struct config_key *key;
	const char *path = config_key_path(targets);
	int depth;

	open_sections(w, path, 0, &depth);
	print_comment(w, targets, 0, printf(config->target_count ? "  targets:" : "  targets: []"));
	for (uint32_t t = 0; t < config->target_count; t++) {
		printf("    -\n");
		w->before = NULL;
		for (size_t i = 0; (key = config_key_get(i)); i++) {
			if (config_key_is_of_target(key))
				print_line(w, key, t);
		}
	}
	w->before = path;
}

void cli_agent_print_config(const struct cli_agent_shown *shown)
{
	struct writer w = {.shown = shown};
	const struct config_key *key;

	if (!shown->kernel)
		printf("# On this machine it does not fit: %s\n", shown->why);
	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (config_key_is_targets(key))
			print_targets(&w, key);
		else if (!config_key_is_of_target(key))
			print_line(&w, key, 0);
	}
}
