/* SPDX-License-Identifier: Apache-2.0 */
/* Figures as JSON, for the summary and the status. Private to the part. */
#ifndef FLYBALL_AGENT_FIGURES_JSON_H
#define FLYBALL_AGENT_FIGURES_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct json_figure {
	const char *name;
	uint64_t value;
};

static inline json_t *json_number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

/* An object of them. The caller owns it. */
static inline json_t *json_figures(const struct json_figure *figures, size_t count)
{
	json_t *o = json_object();

	for (size_t i = 0; i < count; i++)
		json_object_set_new(o, figures[i].name, json_number(figures[i].value));
	return o;
}

#endif
