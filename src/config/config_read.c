// SPDX-License-Identifier: Apache-2.0
/*
 * config_read: YAML to values, by libyaml's events, so that each value has its line and nothing is
 * kept of what is not a key.
 *
 * The text may be anybody's. Its size and depth are limited; anchors and aliases, which could make
 * much out of little, and tags are refused. What is not YAML ends the reading, since positions
 * after it would be guesses; every other mistake is told and passed over.
 */
#include "config_internal.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#define DEPTH_MAX 32
#define SEEN_MAX  (CONFIG_KEYS_MAX + CONFIG_FINDINGS_MAX)

struct reader {
	struct config *config;
	struct config_report *report;
	const char *text;
	yaml_parser_t parser;
	yaml_event_t event;
	int err; /* -EBADMSG: told, and over; -ENOMEM */
};

/* Where values of a mapping go. */
struct scope {
	char prefix[CONFIG_NAME_MAX]; /* "ebpf." */
	void *base;
	struct config_target *target;
};

/* The keys of one mapping so far. */
struct seen {
	size_t count;
	struct {
		char name[CONFIG_NAME_MAX];
		uint32_t line;
	} keys[SEEN_MAX];
};

static struct config_place place_of(const yaml_mark_t *mark)
{
	return (struct config_place){.source = CONFIG_FILE,
				     .line = (uint32_t)mark->line + 1,
				     .column = (uint32_t)mark->column + 1};
}

static struct config_place here(const struct reader *r)
{
	return place_of(&r->event.start_mark);
}

static void complain(struct reader *r, struct config_place place, const char *key,
		     const char *problem, const char *fix)
{
	struct config_finding *f = config_report_add(r->report, place, key, "");

	config_say(f->problem, sizeof(f->problem), "%s", problem);
	config_say(f->fix, sizeof(f->fix), "%s", fix);
}

/* ---------------------------------------------------------------- events */
/* Of a byte that cannot be decoded libyaml says the offset alone. */
static struct config_place place_of_byte(const char *text, size_t offset)
{
	struct config_place place = {.source = CONFIG_FILE, .line = 1, .column = 1};

	for (size_t i = 0; i < offset; i++) {
		place.column++;
		if (text[i] == '\n') {
			place.line++;
			place.column = 1;
		}
	}
	return place;
}

static void tell_syntax(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	bool is_byte = p->error == YAML_READER_ERROR;
	char problem[256];

	if (p->error == YAML_MEMORY_ERROR) {
		r->err = -ENOMEM;
		return;
	}
	snprintf(problem, sizeof(problem), "this is not YAML: %s%s%s",
		 p->problem ? p->problem : "it cannot be read", p->context ? ", " : "",
		 p->context ? p->context : "");
	complain(r,
		 is_byte ? place_of_byte(r->text, p->problem_offset) : place_of(&p->problem_mark),
		 "", problem,
		 is_byte ? "save the file as UTF-8 text, without such bytes"
			 : "look at the indentation (spaces, no tabs), at the space after each "
			   "colon, and at brackets and quotes");
	r->err = -EBADMSG;
}

static void refuse_extras(struct reader *r)
{
	const yaml_char_t *anchor = NULL, *tag = NULL;

	if (r->event.type == YAML_SCALAR_EVENT) {
		anchor = r->event.data.scalar.anchor;
		tag = r->event.data.scalar.tag;
	} else if (r->event.type == YAML_SEQUENCE_START_EVENT) {
		anchor = r->event.data.sequence_start.anchor;
		tag = r->event.data.sequence_start.tag;
	} else if (r->event.type == YAML_MAPPING_START_EVENT) {
		anchor = r->event.data.mapping_start.anchor;
		tag = r->event.data.mapping_start.tag;
	}
	if (anchor)
		complain(r, here(r), "", "an anchor (&) is not read here",
			 "take it away; write values where they belong");
	if (r->event.type == YAML_ALIAS_EVENT)
		complain(r, here(r), "", "an alias (*) is not read here", "write the value itself");
	if (tag)
		complain(r, here(r), "", "a tag (!) is not read here", "take it away");
}

/* False when it is over: the end, an error, or as many findings as are told. */
static bool next(struct reader *r)
{
	if (r->err)
		return false;
	yaml_event_delete(&r->event);
	if (!yaml_parser_parse(&r->parser, &r->event)) {
		tell_syntax(r);
		return false;
	}
	refuse_extras(r);
	if (r->report->is_full)
		r->err = -EBADMSG;
	return !r->err;
}

/* Past the node that begins with the present event. */
static void skip(struct reader *r)
{
	int depth = 0;

	do {
		switch (r->event.type) {
		case YAML_MAPPING_START_EVENT:
		case YAML_SEQUENCE_START_EVENT:
			depth++;
			break;
		case YAML_MAPPING_END_EVENT:
		case YAML_SEQUENCE_END_EVENT:
			depth--;
			break;
		default:
			break;
		}
		if (depth > DEPTH_MAX) {
			complain(r, here(r), "", "this is nested deeper than anything here can be",
				 "close the brackets, or move lines to the left");
			r->err = -EBADMSG;
		}
	} while (depth && next(r));
}

static bool is_null(const struct reader *r)
{
	const char *text = (const char *)r->event.data.scalar.value;

	return r->event.type == YAML_SCALAR_EVENT &&
	       r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

static struct config_word word_of(const struct reader *r)
{
	return (struct config_word){
		.text = (const char *)r->event.data.scalar.value,
		.len = r->event.data.scalar.length,
		.is_quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE,
		.place = here(r),
	};
}

static void set_err(struct reader *r, int err)
{
	if (err && !r->err)
		r->err = err;
}

/* ---------------------------------------------------------------- one key */
static void want(struct reader *r, const struct config_key *key, const char *problem)
{
	char expects[256], fix[300];

	config_key_expects(key, expects, sizeof(expects));
	snprintf(fix, sizeof(fix), "give %s", expects);
	complain(r, here(r), key->path, problem, fix);
	skip(r);
}

static void read_list(struct reader *r, const struct scope *scope, const struct config_key *key)
{
	if (r->event.type != YAML_SEQUENCE_START_EVENT) {
		want(r, key, "this is no list");
		return;
	}
	config_value_clear(scope->base, key);
	*config_place_at(r->config, scope->target, key) = here(r);
	while (next(r) && r->event.type != YAML_SEQUENCE_END_EVENT) {
		struct config_word word;

		if (r->event.type != YAML_SCALAR_EVENT || is_null(r)) {
			want(r, key, "an item is no single value");
			continue;
		}
		word = word_of(r);
		set_err(r, config_value_add(r->config, scope->base, key, &word, r->report));
	}
}

/* The present event is a header's value. */
static void add_header(struct reader *r, const struct scope *scope, const struct config_key *key,
		       const char *name)
{
	struct config_word word = word_of(r);
	struct buf header;

	buf_init(&header, MEM_CONFIG, CONFIG_TEXT_MAX_BYTES);
	buf_add_str(&header, name);
	buf_add_str(&header, ": ");
	buf_add(&header, word.text, word.len);
	set_err(r, header.err);
	if (!header.err) {
		word.text = header.data;
		word.len = header.len;
		set_err(r, config_value_add(r->config, scope->base, key, &word, r->report));
	}
	buf_done(&header);
}

static void read_headers(struct reader *r, const struct scope *scope, const struct config_key *key)
{
	char name[CONFIG_NAME_MAX];

	if (r->event.type != YAML_MAPPING_START_EVENT) {
		want(r, key, "these are no headers");
		return;
	}
	*config_place_at(r->config, scope->target, key) = here(r);
	while (next(r) && r->event.type != YAML_MAPPING_END_EVENT) {
		bool is_name = r->event.type == YAML_SCALAR_EVENT &&
			       r->event.data.scalar.length < sizeof(name);

		if (is_name)
			snprintf(name, sizeof(name), "%s", r->event.data.scalar.value);
		else
			want(r, key, "a header's name is one short word");
		if (!next(r))
			return;
		if (is_name && r->event.type == YAML_SCALAR_EVENT)
			add_header(r, scope, key, name);
		else if (is_name)
			want(r, key, "a header's value is one text");
		else
			skip(r);
	}
}

static void read_mapping(struct reader *r, const struct scope *scope);

static void read_targets(struct reader *r, const struct config_key *key)
{
	struct config *c = r->config;
	struct scope scope = {.prefix = CONFIG_TARGET_PREFIX};

	if (r->event.type != YAML_SEQUENCE_START_EVENT) {
		want(r, key, "this is no list");
		return;
	}
	*config_place_at(c, NULL, key) = here(r);
	while (next(r) && r->event.type != YAML_SEQUENCE_END_EVENT) {
		if (r->event.type != YAML_MAPPING_START_EVENT) {
			want(r, key, "a target has keys of its own");
			continue;
		}
		if (c->target_count == CONFIG_TARGETS_MAX) {
			want(r, key, "these are more than 16 targets");
			continue;
		}
		scope.base = scope.target = &c->targets[c->target_count];
		set_err(r, config_target_init(c, scope.target));
		scope.target->place = here(r);
		c->target_count++;
		read_mapping(r, &scope);
	}
}

static void set_value(struct reader *r, const struct scope *scope, const struct config_key *key)
{
	struct config_word word = word_of(r);
	size_t errors = r->report->error_count;
	struct config_finding *f;

	set_err(r, config_value_set(r->config, scope->base, key, &word, r->report));
	if (!key->note || errors != r->report->error_count)
		return;
	f = config_report_note(r->report, word.place, key->path);
	config_say(f->problem, sizeof(f->problem), "%s", key->note);
}

static void read_value(struct reader *r, const struct scope *scope, const struct config_key *key)
{
	if (is_null(r)) {
		want(r, key, "it has no value");
		return;
	}
	switch (key->type) {
	case CONFIG_LIST:
		read_list(r, scope, key);
		return;
	case CONFIG_HEADERS:
		read_headers(r, scope, key);
		return;
	case CONFIG_TARGETS:
		read_targets(r, key);
		return;
	default:
		break;
	}
	if (r->event.type == YAML_SCALAR_EVENT)
		set_value(r, scope, key);
	else
		want(r, key, "it takes one value");
}

/* ---------------------------------------------------------------- mappings */
static bool find_seen(struct reader *r, struct seen *seen, const char *name, const char *path,
		      struct config_place place)
{
	char problem[64];

	for (size_t i = 0; i < seen->count; i++) {
		if (strcmp(seen->keys[i].name, name) != 0)
			continue;
		snprintf(problem, sizeof(problem), "it is in line %u already", seen->keys[i].line);
		complain(r, place, path, problem, "keep one of the two");
		return true;
	}
	/* Never full: each unknown key is a finding, and known ones are fewer. */
	if (seen->count < SEEN_MAX) {
		snprintf(seen->keys[seen->count].name, CONFIG_NAME_MAX, "%s", name);
		seen->keys[seen->count++].line = place.line;
	}
	return false;
}

static void tell_unknown(struct reader *r, const char *path, struct config_place place)
{
	const char *nearest = config_key_nearest(path);
	char fix[200];

	snprintf(fix, sizeof(fix), "did you mean %s?", nearest ? nearest : "");
	complain(r, place, path, "there is no such key",
		 nearest ? fix : "take it away; docs/configuration.md lists all keys");
}

static void read_section(struct reader *r, const struct scope *scope, const char *path)
{
	struct scope below = *scope;

	if (r->event.type == YAML_MAPPING_START_EVENT) {
		snprintf(below.prefix, sizeof(below.prefix), "%.*s.", CONFIG_NAME_MAX - 2, path);
		read_mapping(r, &below);
	} else if (!is_null(r)) {
		complain(r, here(r), path, "it has keys below it, no value of its own",
			 "put its keys on lines below it, indented");
		skip(r);
	}
}

/* The present event is a key. */
static void read_entry(struct reader *r, const struct scope *scope, struct seen *seen)
{
	struct config_place place = here(r);
	char name[CONFIG_NAME_MAX], path[CONFIG_NAME_MAX];
	const struct config_key *key;

	if (r->event.type != YAML_SCALAR_EVENT) {
		complain(r, place, "", "a key is one word", "write KEY: VALUE");
		skip(r);
		if (next(r))
			skip(r);
		return;
	}
	text_print((const char *)r->event.data.scalar.value, r->event.data.scalar.length, name,
		   sizeof(name));
	config_say(path, sizeof(path), "%s%s", scope->prefix, name);
	key = config_key_find(path);
	if (!next(r))
		return;
	if (find_seen(r, seen, name, path, place)) {
		skip(r);
	} else if (strpbrk(name, ".[")) {
		complain(r, place, path, "a key has no . or [",
			 "write each part on a line of its own, the next one indented below it");
		skip(r);
	} else if (key) {
		read_value(r, scope, key);
	} else if (config_key_is_section(path)) {
		read_section(r, scope, path);
	} else {
		tell_unknown(r, path, place);
		skip(r);
	}
}

/* The present event starts a mapping. Calls itself as deep as keys are: four times. */
static void read_mapping(struct reader *r, const struct scope *scope)
{
	struct seen *seen = mem_alloc(MEM_CONFIG, sizeof(*seen));

	if (!seen)
		r->err = -ENOMEM;
	while (next(r) && r->event.type != YAML_MAPPING_END_EVENT)
		read_entry(r, scope, seen);
	mem_free(MEM_CONFIG, seen);
}

/* ---------------------------------------------------------------- the text */
static void read_document(struct reader *r, const struct scope *scope)
{
	if (!next(r) || r->event.type == YAML_STREAM_END_EVENT)
		return;
	if (!next(r)) /* past DOCUMENT-START */
		return;
	if (r->event.type == YAML_MAPPING_START_EVENT) {
		read_mapping(r, scope);
	} else if (!is_null(r)) {
		complain(r, here(r), "", "the file is no list of keys",
			 "write lines of KEY: VALUE");
		return;
	}
	if (!next(r) || !next(r) || r->event.type == YAML_STREAM_END_EVENT)
		return;
	complain(r, here(r), "", "a second document begins here", "keep to one, without ---");
}

int config_read(struct config *config, const char *text, size_t len, struct config_report *report)
{
	struct reader r = {.config = config, .report = report, .text = text};
	const struct scope scope = {.base = config};

	if (len > CONFIG_TEXT_MAX_BYTES) {
		complain(&r, (struct config_place){0}, "", "the file has more than 256 KiB",
			 "shorten it");
		return 0;
	}
	if (!yaml_parser_initialize(&r.parser))
		return -ENOMEM;
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
	if (next(&r)) /* STREAM-START */
		read_document(&r, &scope);
	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.parser);
	return r.err == -ENOMEM ? -ENOMEM : 0;
}
