// SPDX-License-Identifier: Apache-2.0
/*
 * spans: asks what sampled processes publish of their trace context, and tells the kernel side
 * where their threads' spans are.
 *
 * No event says that a process publishes, or has loaded the library that does: it is asked when it
 * is first sampled, and again at growing intervals for as long as it is sampled.
 */
#include "record_private.h"

#include <errno.h>
#include <string.h>

#define HASH_NONFATAL_OOM	1
#define uthash_malloc(bytes)	mem_alloc(MEM_AGENT, bytes)
#define uthash_free(p, bytes)	mem_free(MEM_AGENT, p)
#define uthash_nonfatal_oom(el) ((el)->is_lost = true)
#include <uthash.h>
#include <utlist.h>

#define PROCESSES_MAX 16384
#define ASKED_MAX     8		   /* at the helpers at one time */
#define FIRST_NS      250000000ULL /* from the first answer to the second question */
#define LAST_NS	      64000000000ULL
#define NAMES_MAX     (4U << 20) /* bytes of attributes' names, of all processes */

/* Of a process's attributes, by their index. */
struct names {
	size_t bytes; /* of all this */
	uint32_t count;
	uint32_t at[CONTEXT_KEYS_MAX]; /* in texts */
	char texts[];
};

struct publisher {
	UT_hash_handle hh;
	struct publisher *prev, *next; /* in due, when is_due */
	struct spans *spans;
	uint32_t tgid;
	uint64_t start_ns;
	uint64_t asked_ns, interval_ns;
	uint64_t published_ns;
	bool is_due, is_asking, is_gone, is_lost;
	bool is_unsupported, is_invalid; /* counted as such */
	char service[CONTEXT_TEXT_MAX];
	struct names *names;
	uint64_t named_ns; /* samples before are of another program */
};

struct spans {
	struct spans_options opt;
	struct publisher *all, *due;
	uint64_t now_ns;
	size_t asking, name_bytes;
	struct spans_stats stats;
};

int spans_new(const struct spans_options *options, struct spans **ret)
{
	struct spans *s = mem_alloc(MEM_AGENT, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->opt = *options;
	*ret = s;
	return 0;
}

void spans_free(struct spans *s)
{
	struct publisher *p, *next;

	if (!s)
		return;
	HASH_ITER (hh, s->all, p, next) {
		HASH_DEL(s->all, p);
		mem_free(MEM_AGENT, p->names);
		mem_free(MEM_AGENT, p);
	}
	mem_free(MEM_AGENT, s);
}

static struct publisher *find(const struct spans *s, uint32_t tgid)
{
	struct publisher *p;

	HASH_FIND(hh, s->all, &tgid, sizeof(tgid), p);
	return p;
}

static void set_due(struct publisher *p, bool is_due)
{
	struct spans *s = p->spans;

	if (p->is_due == is_due)
		return;
	p->is_due = is_due;
	if (is_due)
		DL_APPEND(s->due, p);
	else
		DL_DELETE(s->due, p);
}

static void names_drop(struct publisher *p)
{
	if (p->names)
		p->spans->name_bytes -= p->names->bytes;
	mem_free(MEM_AGENT, p->names);
	p->names = NULL;
}

static void names_take(struct publisher *p, const struct helpers_context *context)
{
	struct spans *s = p->spans;
	size_t bytes = sizeof(struct names), at = 0;
	struct names *names = NULL;

	if (!p->names)
		p->named_ns = p->asked_ns;
	names_drop(p);
	for (size_t i = 0; i < context->key_count; i++)
		bytes += strlen(context->keys[i]) + 1;
	if (s->name_bytes + bytes <= NAMES_MAX)
		names = mem_alloc(MEM_AGENT, bytes);
	if (!names) {
		s->stats.unnamed++;
		return;
	}
	names->bytes = bytes;
	names->count = (uint32_t)context->key_count;
	for (size_t i = 0; i < context->key_count; i++) {
		size_t length = strlen(context->keys[i]) + 1;

		memcpy(names->texts + at, context->keys[i], length);
		names->at[i] = (uint32_t)at;
		at += length;
	}
	s->name_bytes += bytes;
	p->names = names;
}

static void forget(struct publisher *p)
{
	struct spans *s = p->spans;

	if (p->published_ns)
		kernel_span_remove(s->opt.kernel, p->tgid);
	set_due(p, false);
	/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it is in there */
	HASH_DEL(s->all, p);
	names_drop(p);
	mem_free(MEM_AGENT, p);
}

static struct publisher *make(struct spans *s, uint32_t tgid, uint64_t start_ns)
{
	struct publisher *p;

	if (HASH_COUNT(s->all) >= PROCESSES_MAX)
		return NULL;
	p = mem_alloc(MEM_AGENT, sizeof(*p));
	if (!p)
		return NULL;
	*p = (struct publisher){.spans = s, .tgid = tgid, .start_ns = start_ns};
	HASH_ADD(hh, s->all, tgid, sizeof(p->tgid), p);
	if (p->is_lost) {
		mem_free(MEM_AGENT, p);
		return NULL;
	}
	return p;
}

void spans_sample(struct spans *s, const struct fly_sample *sample)
{
	struct publisher *p;

	if (!s->opt.helpers ||
	    sample->state & (FLY_STATE_KERNEL_THREAD | FLY_STATE_IO_WORKER | FLY_STATE_COMPAT))
		return;
	p = find(s, sample->tgid);
	if (p && p->start_ns != sample->process_start_ns && !p->is_asking) {
		forget(p);
		p = NULL;
	}
	if (!p)
		p = make(s, sample->tgid, sample->process_start_ns);
	if (p && !p->is_asking && (!p->asked_ns || s->now_ns >= p->asked_ns + p->interval_ns))
		set_due(p, true);
}

void spans_changed(struct spans *s, uint32_t tgid, enum process_change change)
{
	struct publisher *p = s && change != PROCESS_MAPPED ? find(s, tgid) : NULL;

	if (!p)
		return;
	if (p->is_asking) {
		p->is_gone =
			change == PROCESS_EXECUTED; /* the answer is of what was there before */
	} else if (change == PROCESS_EXECUTED) {
		forget(p);
	} else if (p->published_ns) { /* what it said of itself is wanted at the end */
		kernel_span_remove(s->opt.kernel, tgid);
		p->published_ns = 0;
	}
}

static void take(struct publisher *p, const struct helpers_context *context)
{
	struct spans *s = p->spans;
	struct fly_span_place place = {
		.start_ns = p->start_ns,
		.offset = context->place.offset,
		.module = (uint32_t)context->place.module,
		.dtv_entry_bytes = context->dtv_entry_bytes,
	};

	for (size_t i = 0; i < context->attribute_count; i++)
		if (!strcmp(context->attributes[i][0], "service.name"))
			snprintf(p->service, sizeof(p->service), "%s", context->attributes[i][1]);
	if (context->published_ns && !p->published_ns)
		s->stats.published++;
	p->published_ns = context->published_ns;
	if (context->state == HELPERS_CONTEXT_FOUND) {
		if (kernel_span_put(s->opt.kernel, p->tgid, &place))
			s->stats.full++;
		else
			names_take(p, context);
	} else if (context->state == HELPERS_CONTEXT_UNSUPPORTED && !p->is_unsupported) {
		p->is_unsupported = true;
		s->stats.unsupported++;
	}
}

static void tell_invalid(struct publisher *p, const char *text)
{
	if (p->is_invalid)
		return;
	p->is_invalid = true;
	p->spans->stats.invalid++;
	log_info("no spans of process %u: %s", p->tgid, text);
}

static void done(void *ctx, const struct helpers_result *result)
{
	struct publisher *p = ctx;
	struct spans *s = p->spans;

	s->asking--;
	p->is_asking = false;
	if (p->is_gone) {
		forget(p);
		return;
	}
	p->interval_ns = p->interval_ns ? 2 * p->interval_ns : FIRST_NS;
	if (p->interval_ns > LAST_NS)
		p->interval_ns = LAST_NS;
	if (result->err == -ETIMEDOUT)
		tell_invalid(p, result->text);
	if (result->err || !result->context)
		return;
	if (result->context->state == HELPERS_CONTEXT_INVALID)
		tell_invalid(p, result->text);
	take(p, result->context);
}

void spans_step(struct spans *s, uint64_t now_ns)
{
	struct publisher *p, *next;

	s->now_ns = now_ns;
	DL_FOREACH_SAFE(s->due, p, next)
	{
		if (s->asking >= ASKED_MAX)
			return;
		if (helpers_context(s->opt.helpers, p->tgid, p->start_ns, done, p))
			return;
		set_due(p, false);
		p->asked_ns = now_ns;
		p->is_asking = true;
		s->asking++;
	}
}

/* An index that has no name (yet) keeps its values apart all the same. */
static const char *name_of(const struct publisher *p, const struct fly_sample *sample,
			   uint8_t index, char room[24])
{
	const struct names *names = p ? p->names : NULL;

	if (names && sample->time_ns >= p->named_ns && index < names->count &&
	    names->texts[names->at[index]])
		return names->texts + names->at[index];
	snprintf(room, 24, "context.attribute.%u", index);
	return room;
}

/* What an output would have to change is not what was said. */
static bool is_clean(const char *text, size_t bytes)
{
	char clean[3 * UINT8_MAX + 1];

	return text_print(text, bytes, clean, sizeof(clean)) == bytes &&
	       !memcmp(text, clean, bytes);
}

/* {index, length, value}... (OTEP 4947) */
enum profile_span_fault spans_attributes(const struct spans *s, const struct fly_sample *sample,
					 struct spans_attributes *ret)
{
	const struct publisher *p = s ? find(s, sample->tgid) : NULL;
	const char *at = (const char *)&sample->frames[sample->kernel_frames + sample->user_frames];
	const char *end = at + sample->attribute_bytes;
	enum profile_span_fault fault = PROFILE_SPAN_KNOWN;

	if (p && p->start_ns != sample->process_start_ns)
		p = NULL;
	ret->count = 0;
	while (end - at >= 2 && (uint8_t)at[1] <= end - at - 2) {
		size_t bytes = (uint8_t)at[1], n = ret->count;

		if (n == PROFILE_ATTRIBUTES_MAX)
			return PROFILE_SPAN_ATTRIBUTES_TRUNCATED;
		ret->list[n] = (struct profile_attribute){
			name_of(p, sample, (uint8_t)at[0], ret->names[n]), at + 2, bytes};
		if (!is_clean(at + 2, bytes))
			fault = PROFILE_SPAN_ATTRIBUTES_INVALID;
		ret->count++;
		at += 2 + bytes;
	}
	if (sample->state & FLY_STATE_ATTRIBUTES_ABSENT)
		return PROFILE_SPAN_ATTRIBUTES_ABSENT;
	if (sample->state & FLY_STATE_ATTRIBUTES_CUT)
		return PROFILE_SPAN_ATTRIBUTES_TRUNCATED;
	return at == end ? fault : PROFILE_SPAN_ATTRIBUTES_INVALID;
}

const char *spans_service(const struct spans *s, uint32_t tgid, uint64_t start_ns)
{
	const struct publisher *p = s ? find(s, tgid) : NULL;

	return p && p->start_ns == start_ns ? p->service : "";
}

void spans_stats_get(const struct spans *s, struct spans_stats *ret)
{
	*ret = s->stats;
}
