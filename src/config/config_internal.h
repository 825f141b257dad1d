/* SPDX-License-Identifier: Apache-2.0 */
/* Inside config: the table's rows, and who fills the report. */
#ifndef FLYBALL_CONFIG_INTERNAL_H
#define FLYBALL_CONFIG_INTERNAL_H

#include "config/config.h"

enum config_type {
	CONFIG_COUNT,	 /* uint32_t */
	CONFIG_PERCENT,	 /* uint32_t ppm; "1.5" */
	CONFIG_BYTES,	 /* uint64_t; "512Mi" */
	CONFIG_DURATION, /* uint64_t ns; "10s" */
	CONFIG_BOOL,
	CONFIG_CHOICE, /* uint32_t index of values */
	CONFIG_TEXT,
	CONFIG_LIST,
	CONFIG_HEADERS,
	CONFIG_TARGETS,
};

/* What a text must look like. */
enum config_form {
	CONFIG_ANY,
	CONFIG_PATH,
	CONFIG_SOCKET,
	CONFIG_ADDRESS,
	CONFIG_URL,
	CONFIG_UID,
	CONFIG_CGROUP,
	CONFIG_CONTAINER,
	CONFIG_COMM,
	CONFIG_VARIABLE,
	CONFIG_FORMS,
};

struct config_choice {
	const char *name;
	const char *breaks; /* the directive, where the value is known and refused */
	const char *text;
};

struct config_key {
	const char *path;
	enum config_type type;
	enum config_form form; /* of texts and of the items of lists */
	size_t at;	       /* in struct config, or struct config_target */
	const char *normal;    /* default as text; NULL: none */
	uint64_t min, max;     /* of numbers: in units, ppm, bytes, ns */
	bool is_power_of_two;
	const struct config_choice *choices; /* ends with a NULL name; accepted ones first */
	const char *directive;		     /* that a number out of range or `breaks` breaks */
	const char *breaks;		     /* the value of a bool that does: "true" or "false" */
	const char *unit;		     /* of a count: "Hz" */
	const char *text;		     /* what it does */
	const char *note; /* what it maps to, where that is not what its name says */
	bool is_fixed;	  /* a change needs a restart */
	bool is_required; /* of a target: must be given */
};
#define CONFIG_TARGET_PREFIX "export.targets[]."

size_t config_key_index(const struct config_key *key);
const struct config_key *config_key_find(const char *path);
bool config_key_is_section(const char *path);
/* The nearest key's path, or NULL when none is near. */
const char *config_key_nearest(const char *path);
/* "512Mi, 1Gi": what may be given, for fixes and for the documentation. */
void config_key_expects(const struct config_key *key, char *out, size_t out_size);

/* Puts one finding in; its texts are the caller's to fill, by config_say, which makes foreign text
 * printable. Never NULL: past the limit it is one that nobody sees. */
struct config_finding *config_report_add(struct config_report *report, struct config_place place,
					 const char *key, const char *directive);
struct config_finding *config_report_note(struct config_report *report, struct config_place place,
					  const char *key);
void config_say(char *out, size_t out_size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A value as text, into base (the config, or a target of it). is_quoted: "19" is no number. */
struct config_word {
	const char *text;
	size_t len;
	bool is_quoted;
	struct config_place place;
};
int config_value_set(struct config *config, void *base, const struct config_key *key,
		     const struct config_word *word, struct config_report *report);
/* One more item, or "Name: value" header. */
int config_value_add(struct config *config, void *base, const struct config_key *key,
		     const struct config_word *word, struct config_report *report);
/* Items separated by commas. */
int config_value_split(struct config *config, void *base, const struct config_key *key,
		       const struct config_word *word, struct config_report *report);
void config_value_clear(void *base, const struct config_key *key);
/* Of the config or a target. */
struct config_place *config_place_at(struct config *config, struct config_target *target,
				     const struct config_key *key);
int config_target_init(struct config *config, struct config_target *target);

#endif
