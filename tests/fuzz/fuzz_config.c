// SPDX-License-Identifier: Apache-2.0
/* Any text as a configuration: findings are in order and have places, and what was accepted,
 * printed key by key and given again, is the same. */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

static struct config_report report;

static void look_at_findings(size_t lines)
{
	const struct config_place *before = NULL, *place;

	config_report_sort(&report);
	for (size_t i = 0; i < report.count; i++) {
		place = &report.findings[i].place;
		if (!report.findings[i].problem[0] ||
		    (!report.findings[i].is_note && !report.findings[i].fix[0]))
			abort();
		if (place->source == CONFIG_FILE && (!place->line || place->line > lines + 1))
			abort();
		if (before && before->source == place->source && before->line > place->line)
			abort();
		before = place;
	}
}

/* A line per key; targets are left out, since their headers are not printed. */
static void print_all(const struct config *config, struct buf *out)
{
	const struct config_key *key;
	char variable[CONFIG_NAME_MAX];
	size_t len;

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (!config_key_variable(key, variable))
			continue;
		len = out->len;
		for (const char *c = config_key_path(key); *c; c++)
			buf_add_str(out, *c == '.' ? ": {" : (char[]){*c, '\0'});
		buf_add_str(out, ": ");
		config_value_print(config, key, 0, out);
		if (!out->err && out->data[out->len - 1] == ' ') {
			out->len = len; /* no value */
			continue;
		}
		for (const char *c = config_key_path(key); *c; c++)
			buf_add_str(out, *c == '.' ? "}" : "");
		buf_add_char(out, '\n');
	}
}

/* Sections would be repeated, so each line is a text of its own. */
static void give_again(const struct config *config)
{
	const struct config_key *keys[CONFIG_KEYS_MAX];
	struct config *again;
	struct buf text;
	size_t n;

	buf_init(&text, MEM_CONFIG, 4 << 20);
	print_all(config, &text);
	if (text.err || config_new(&again))
		abort();
	for (char *line = text.data, *end; line < text.data + text.len; line = end + 1) {
		end = memchr(line, '\n', text.len - (size_t)(line - text.data));
		if (config_read(again, line, (size_t)(end - line), &report) || report.error_count)
			abort();
	}
	n = config_changes(config, again, keys, CONFIG_KEYS_MAX);
	for (size_t i = 0; i < n && i < CONFIG_KEYS_MAX; i++) {
		if (!config_key_is_targets(keys[i]))
			abort();
	}
	buf_done(&text);
	config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config *config;
	size_t lines = 1;

	memset(&report, 0, sizeof(report));
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n' || data[i] == '\r' || data[i] == 0x85 || data[i] == 0xa8 ||
			 data[i] == 0xa9;
	if (config_new(&config) || config_read(config, (const char *)data, size, &report))
		abort();
	config_check(config, &report);
	look_at_findings(lines);
	if (!report.error_count) {
		memset(&report, 0, sizeof(report));
		give_again(config);
	}
	config_free(config);
	return 0;
}
