// SPDX-License-Identifier: Apache-2.0
/*
 * config_value: one value, from text and to text. Strict: what could be read in two ways (512M,
 * "19", yes) is refused with what to write. A refused value leaves the one before.
 */
#include "config_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX_BYTES 8192

static void *field(void *base, const struct config_key *key)
{
	return (char *)base + key->at;
}

/* The value as given, fit to be shown. */
static const char *shown(const struct config_word *word, char out[64])
{
	text_print(word->text, word->len, out, 64);
	return out;
}

static struct config_finding *refuse(const struct config_key *key, const struct config_word *word,
				     const char *directive, struct config_report *report)
{
	char expects[256];
	struct config_finding *f = config_report_add(report, word->place, key->path, directive);

	config_key_expects(key, expects, sizeof(expects));
	if (key->normal && *key->normal && strcmp(expects, key->normal) && !key->choices)
		config_say(f->fix, sizeof(f->fix), "give %s; the default is %s", expects,
			   key->normal);
	else
		config_say(f->fix, sizeof(f->fix), "give %s", expects);
	return f;
}

static void refuse_type(const struct config_key *key, const struct config_word *word,
			const char *what, struct config_report *report)
{
	struct config_finding *f = refuse(key, word, "", report);
	char text[64];

	config_say(f->problem, sizeof(f->problem), "%s is %s", shown(word, text), what);
}

static void refuse_range(const struct config_key *key, const struct config_word *word,
			 struct config_report *report)
{
	struct config_finding *f = refuse(key, word, key->directive ? key->directive : "", report);
	char text[64];

	config_say(f->problem, sizeof(f->problem), "%s is out of range", shown(word, text));
}

/* ---------------------------------------------------------------- numbers */
/* Digits with at most four behind a point, in units of 1/10,000. */
static int parse_percent(const char *s, uint64_t *ret_ppm)
{
	const char *point = strchr(s, '.');
	char whole[24];
	uint64_t v, scale = 10000;
	size_t n = point ? (size_t)(point - s) : strlen(s);

	if (n >= sizeof(whole))
		return s[strspn(s, "0123456789.")] ? -EINVAL : -ERANGE;
	memcpy(whole, s, n);
	whole[n] = '\0';
	if (text_parse_u64(whole, 0, UINT64_MAX, &v))
		return -EINVAL;
	if (v > 1000000)
		return -ERANGE;
	v *= 10000;
	if (point && !point[1])
		return -EINVAL;
	for (s = point ? point + 1 : ""; *s; s++) {
		if (!isdigit((unsigned char)*s))
			return -EINVAL;
		scale /= 10;
		v += scale * (uint64_t)(*s - '0');
	}
	*ret_ppm = v;
	return 0;
}

/* 512M is 512,000,000 to some and 536,870,912 to others, and 512m is half a byte to Kubernetes. */
static int parse_bytes(const char *s, uint64_t *ret)
{
	const char *unit = s + strspn(s, "0123456789");

	if (*unit && (!strchr("KMGT", *unit) || unit[1] != 'i'))
		return -EINVAL;
	return text_parse_bytes(s, ret);
}

/* In whole milliseconds. */
static int parse_duration(const char *s, uint64_t *ret)
{
	int err = text_parse_duration(s, ret);

	if (!err)
		*ret -= *ret % 1000000;
	return err;
}

static int parse_number(const struct config_key *key, const char *s, uint64_t *ret)
{
	int err;

	if (s[0] == '-' && isdigit((unsigned char)s[1]))
		return -ERANGE;
	if (key->type == CONFIG_PERCENT)
		err = parse_percent(s, ret);
	else if (key->type == CONFIG_BYTES)
		err = parse_bytes(s, ret);
	else if (key->type == CONFIG_DURATION)
		err = parse_duration(s, ret);
	else
		err = text_parse_u64(s, 0, UINT64_MAX, ret);
	if (err)
		return err;
	return *ret < key->min || *ret > key->max ? -ERANGE : 0;
}

static bool set_number(void *base, const struct config_key *key, const struct config_word *word,
		       struct config_report *report)
{
	static const char *const types[] = {
		[CONFIG_COUNT] = "no whole number",
		[CONFIG_PERCENT] = "no number",
		[CONFIG_BYTES] = "no size: write bytes, or Ki, Mi, Gi, Ti",
		[CONFIG_DURATION] = "no time: write 500ms, 10s, 5m, 1h or 7d",
	};
	uint64_t v = 0;
	int err = parse_number(key, word->text, &v);

	if (word->is_quoted && (key->type == CONFIG_COUNT || key->type == CONFIG_PERCENT)) {
		refuse_type(key, word, "a text in quotes, no number", report);
		return false;
	}
	if (err == -EINVAL) {
		refuse_type(key, word, types[key->type], report);
		return false;
	}
	if (err || (key->is_power_of_two && (v & (v - 1)))) {
		refuse_range(key, word, report);
		return false;
	}
	if (key->type == CONFIG_COUNT || key->type == CONFIG_PERCENT)
		*(uint32_t *)field(base, key) = (uint32_t)v;
	else
		*(uint64_t *)field(base, key) = v;
	return true;
}

static bool set_bool(void *base, const struct config_key *key, const struct config_word *word,
		     struct config_report *report)
{
	struct config_finding *f;

	if (word->is_quoted || (strcmp(word->text, "true") && strcmp(word->text, "false"))) {
		refuse_type(key, word,
			    word->is_quoted ? "a text in quotes" : "neither true nor false",
			    report);
		return false;
	}
	if (key->breaks && !strcmp(word->text, key->breaks)) {
		f = refuse(key, word, key->directive, report);
		config_say(f->problem, sizeof(f->problem), "%s is refused", word->text);
		return false;
	}
	*(bool *)field(base, key) = word->text[0] == 't';
	return true;
}

static bool set_choice(void *base, const struct config_key *key, const struct config_word *word,
		       struct config_report *report)
{
	struct config_finding *f;
	uint32_t i = 0;

	for (const struct config_choice *c = key->choices; c->name; c++, i++) {
		if (strcmp(c->name, word->text))
			continue;
		if (!c->breaks) {
			*(uint32_t *)field(base, key) = i;
			return true;
		}
		f = refuse(key, word, c->breaks, report);
		config_say(f->problem, sizeof(f->problem), "%s is refused: %s", c->name, c->text);
		return false;
	}
	refuse_type(key, word, "none of its values", report);
	return false;
}

/* ---------------------------------------------------------------- texts */
static bool is_port(const char *s)
{
	uint64_t port;

	return !text_parse_u64(s, 1, 65535, &port);
}

/* Addresses only: a name may come to mean another machine. */
static bool is_address(const char *s)
{
	char host[64];
	const char *colon = strrchr(s, ':');
	struct in6_addr address;
	size_t n;

	if (!colon || !is_port(colon + 1))
		return false;
	n = (size_t)(colon - s);
	if (n >= sizeof(host))
		return false;
	memcpy(host, s, n);
	host[n] = '\0';
	if (host[0] != '[')
		return inet_pton(AF_INET, host, &address) == 1;
	if (host[n - 1] != ']')
		return false;
	host[n - 1] = '\0';
	return inet_pton(AF_INET6, host + 1, &address) == 1;
}

static bool is_url(const char *s)
{
	size_t host;

	if (strncmp(s, "http://", 7) != 0 && strncmp(s, "https://", 8) != 0)
		return false;
	s = strstr(s, "://") + 3;
	host = strcspn(s, "/?#");
	/* "user:password@" would be shown with the URL: secrets go into headers. */
	return host && !memchr(s, '@', host) && s[0] != ':' && !strpbrk(s, " \"<>\\^`{|}");
}

static bool is_all_of(const char *s, const char *set, size_t min, size_t max)
{
	size_t len = strlen(s);

	return len >= min && len <= max && strspn(s, set) == len;
}

static bool has_form(enum config_form form, const char *s)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
	uint64_t v;

	switch (form) {
	case CONFIG_PATH:
	case CONFIG_CGROUP:
		return s[0] == '/' && strlen(s) < 4096;
	case CONFIG_SOCKET:
		return s[0] == '/' && strlen(s) <= 107;
	case CONFIG_ADDRESS:
		return is_address(s);
	case CONFIG_URL:
		return is_url(s);
	case CONFIG_UID:
		return !text_parse_u64(s, 0, UINT32_MAX - 1, &v);
	case CONFIG_CONTAINER:
		return is_all_of(s, "0123456789abcdef", 12, 64);
	case CONFIG_COMM:
		return strlen(s) >= 1 && strlen(s) <= 15;
	case CONFIG_VARIABLE:
		return is_all_of(s, letters, 1, 64) && !isdigit((unsigned char)s[0]);
	case CONFIG_ANY:
	case CONFIG_FORMS:
		break;
	}
	return strlen(s) < 4096;
}

/* No control character, no bad UTF-8, no NUL inside: what is shown is what was given. */
static bool is_printable(const struct config_word *word)
{
	char out[TEXT_MAX_BYTES];

	return word->len < sizeof(out) &&
	       text_print(word->text, word->len, out, sizeof(out)) == word->len &&
	       !memcmp(out, word->text, word->len);
}

static bool check_text(const struct config_key *key, const struct config_word *word,
		       struct config_report *report)
{
	if (!is_printable(word)) {
		refuse_type(key, word, "no text: it is too long, or has control characters",
			    report);
		return false;
	}
	if (!has_form(key->form, word->text)) {
		refuse_type(key, word, word->len ? "not of its form" : "empty", report);
		return false;
	}
	return true;
}

static int set_text(struct config *config, void *base, const struct config_key *key,
		    const struct config_word *word, struct config_report *report, bool *ret_set)
{
	bool may_be_empty = (key->normal && !*key->normal) || key->form == CONFIG_SOCKET ||
			    key->form == CONFIG_ADDRESS;
	int64_t id;

	if ((word->len || !may_be_empty) && !check_text(key, word, report))
		return 0;
	id = strings_add(config->strings, word->text, word->len);
	if (id < 0)
		return (int)id;
	*(const char **)field(base, key) = strings_get(config->strings, (uint32_t)id);
	*ret_set = true;
	return 0;
}

/* ---------------------------------------------------------------- lists */
void config_value_clear(void *base, const struct config_key *key)
{
	struct config_list *list = field(base, key);

	if (key->type != CONFIG_LIST && key->type != CONFIG_HEADERS)
		return;
	mem_free(MEM_CONFIG, list->items);
	*list = (struct config_list){0};
}

static bool is_header(const char *s)
{
	static const char tokens[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				     "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t n = strspn(s, tokens);

	return n && s[n] == ':';
}

int config_value_add(struct config *config, void *base, const struct config_key *key,
		     const struct config_word *word, struct config_report *report)
{
	struct config_list *list = field(base, key);
	const char **items;
	struct config_word name = *word;
	int64_t id;

	if (key->type == CONFIG_HEADERS && !is_header(word->text)) {
		/* What stands behind the name is a secret. */
		name.len = strcspn(word->text, ":");
		refuse_type(key, &name, "no name of a header", report);
		return 0;
	}
	if (key->type == CONFIG_HEADERS ? !is_printable(word) : !check_text(key, word, report)) {
		if (key->type == CONFIG_HEADERS)
			config_say(refuse(key, word, "", report)->problem, 256,
				   "a header is too long, or has control characters");
		return 0;
	}
	if (list->count >= CONFIG_ITEMS_MAX) {
		config_say(refuse(key, word, "", report)->problem, 256,
			   "the list has more than %d items", CONFIG_ITEMS_MAX);
		return 0;
	}
	id = strings_add(config->strings, word->text, word->len);
	if (id < 0)
		return (int)id;
	items = mem_resize(MEM_CONFIG, list->items, (list->count + 1) * sizeof(*items));
	if (!items)
		return -ENOMEM;
	items[list->count++] = strings_get(config->strings, (uint32_t)id);
	list->items = items;
	return 0;
}

int config_value_split(struct config *config, void *base, const struct config_key *key,
		       const struct config_word *word, struct config_report *report)
{
	struct config_word part = *word;
	char copy[TEXT_MAX_BYTES];
	size_t errors = report->error_count;
	char *next = copy, *item;
	int err = 0;

	if (word->len >= sizeof(copy)) {
		refuse_type(key, word, "too long", report);
		return 0;
	}
	memcpy(copy, word->text, word->len + 1);
	config_value_clear(base, key);
	while (!err && word->len && (item = strsep(&next, ","))) {
		item += strspn(item, " ");
		part.text = item;
		part.len = strlen(item);
		while (part.len && item[part.len - 1] == ' ')
			item[--part.len] = '\0';
		err = config_value_add(config, base, key, &part, report);
		if (report->error_count != errors)
			break;
	}
	return err;
}

int config_value_set(struct config *config, void *base, const struct config_key *key,
		     const struct config_word *word, struct config_report *report)
{
	struct config_target *target = config_key_is_of_target(key) ? base : NULL;
	size_t errors = report->error_count;
	bool is_set = false;
	int err = 0;

	switch (key->type) {
	case CONFIG_COUNT:
	case CONFIG_PERCENT:
	case CONFIG_BYTES:
	case CONFIG_DURATION:
		is_set = set_number(base, key, word, report);
		break;
	case CONFIG_BOOL:
		is_set = set_bool(base, key, word, report);
		break;
	case CONFIG_CHOICE:
		is_set = set_choice(base, key, word, report);
		break;
	case CONFIG_TEXT:
		err = set_text(config, base, key, word, report, &is_set);
		break;
	case CONFIG_LIST:
		err = config_value_split(config, base, key, word, report);
		is_set = errors == report->error_count;
		break;
	case CONFIG_HEADERS:
	case CONFIG_TARGETS:
		refuse_type(key, word, "one value", report);
		break;
	}
	if (is_set || target) /* a target's key that is there but wrong is not missing */
		*config_place_at(config, target, key) = word->place;
	return err;
}

/* ---------------------------------------------------------------- to text */
static void print_number(uint64_t v, const struct config_key *key, struct buf *out)
{
	static const struct {
		uint64_t size;
		const char *name;
	} bytes[] = {{1ULL << 40, "Ti"},
		     {1 << 30, "Gi"},
		     {1 << 20, "Mi"},
		     {1 << 10, "Ki"},
		     {1, ""}},
	  times[] = {{86400000000000ULL, "d"},
		     {3600000000000ULL, "h"},
		     {60000000000ULL, "m"},
		     {1000000000ULL, "s"},
		     {1000000ULL, "ms"}};
	char text[32];
	size_t u = 0, n;

	if (key->type == CONFIG_PERCENT) {
		n = (size_t)snprintf(text, sizeof(text), "%" PRIu64 ".%04" PRIu64, v / 10000,
				     v % 10000);
		while (text[n - 1] == '0')
			text[--n] = '\0';
		if (text[n - 1] == '.')
			text[--n] = '\0';
		buf_add_str(out, text);
	} else if (key->type == CONFIG_BYTES) {
		while (v % bytes[u].size)
			u++;
		buf_addf(out, "%" PRIu64 "%s", v / bytes[u].size, bytes[u].name);
	} else if (key->type == CONFIG_DURATION) {
		while (v % times[u].size)
			u++;
		buf_addf(out, "%" PRIu64 "%s", v / times[u].size, times[u].name);
	} else {
		buf_addf(out, "%" PRIu64, v);
	}
}

static void print_text(const char *s, size_t len, struct buf *out)
{
	buf_add_char(out, '"');
	for (size_t i = 0; i < len; i++) {
		if (s[i] == '"' || s[i] == '\\')
			buf_add_char(out, '\\');
		buf_add_char(out, s[i]);
	}
	buf_add_char(out, '"');
}

static void print_list(const struct config_list *list, bool is_headers, struct buf *out)
{
	buf_add_char(out, is_headers ? '{' : '[');
	for (uint32_t i = 0; i < list->count; i++) {
		const char *s = list->items[i];

		if (i)
			buf_add_str(out, ", ");
		print_text(s, is_headers ? strcspn(s, ":") : strlen(s), out);
		if (is_headers)
			buf_add_str(out, ": \"(hidden)\"");
	}
	buf_add_char(out, is_headers ? '}' : ']');
}

void config_value_print(const struct config *config, const struct config_key *key, uint32_t target,
			struct buf *out)
{
	bool is_of_target = config_key_is_of_target(key);
	const char *at =
		is_of_target ? (const char *)&config->targets[target] : (const char *)config;

	at += key->at;
	switch (key->type) {
	case CONFIG_COUNT:
	case CONFIG_PERCENT:
		if (key->normal || *(const uint32_t *)at)
			print_number(*(const uint32_t *)at, key, out);
		break;
	case CONFIG_BYTES:
	case CONFIG_DURATION:
		print_number(*(const uint64_t *)at, key, out);
		break;
	case CONFIG_BOOL:
		buf_add_str(out, *(const bool *)at ? "true" : "false");
		break;
	case CONFIG_CHOICE:
		buf_add_str(out, key->choices[*(const uint32_t *)at].name);
		break;
	case CONFIG_TEXT:
		print_text(*(const char *const *)at, strlen(*(const char *const *)at), out);
		break;
	case CONFIG_LIST:
	case CONFIG_HEADERS:
		print_list((const struct config_list *)at, key->type == CONFIG_HEADERS, out);
		break;
	case CONFIG_TARGETS:
		break;
	}
}
