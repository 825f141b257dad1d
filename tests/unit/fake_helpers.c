// SPDX-License-Identifier: Apache-2.0
#include "fake_helpers.h"

#include <errno.h>
#include <string.h>

struct fake_request fake_requests[FAKE_MAX];
size_t fake_count, fake_released;
int fake_error;
static char instance;

void fake_reset(void)
{
	fake_count = fake_released = 0;
	fake_error = 0;
}

struct helpers *fake_helpers(void)
{
	return (struct helpers *)(void *)&instance;
}

static struct fake_request *add(enum fake_kind kind, uint32_t tgid, helpers_done done, void *ctx)
{
	struct fake_request *r;

	if (fake_error || fake_count == FAKE_MAX)
		return NULL;
	r = &fake_requests[fake_count++];
	memset(r, 0, sizeof(*r));
	r->kind = kind;
	r->tgid = tgid;
	r->done = done;
	r->ctx = ctx;
	return r;
}

static int add_file(enum fake_kind kind, const struct helpers_file *file, helpers_done done,
		    void *ctx)
{
	struct fake_request *r = add(kind, file->tgid, done, ctx);

	if (!r)
		return fake_error ? fake_error : -EAGAIN;
	r->file = *file;
	if (file->path)
		snprintf(r->path, sizeof(r->path), "%s", file->path);
	return 0;
}

int helpers_hold(struct helpers *helpers, const struct helpers_file *file, helpers_done done,
		 void *ctx)
{
	(void)helpers;
	return add_file(FAKE_HOLD, file, done, ctx);
}

int helpers_inspect(struct helpers *helpers, const struct helpers_file *file, helpers_done done,
		    void *ctx)
{
	(void)helpers;
	return add_file(FAKE_INSPECT, file, done, ctx);
}

int helpers_scan(struct helpers *helpers, uint32_t tgid, helpers_done done, void *ctx)
{
	(void)helpers;
	if (!add(FAKE_SCAN, tgid, done, ctx))
		return fake_error ? fake_error : -EAGAIN;
	return 0;
}

int helpers_table(struct helpers *helpers, const struct helpers_file *file, uint64_t bytes_max,
		  helpers_done done, void *ctx)
{
	(void)helpers;
	(void)bytes_max;
	return add_file(FAKE_TABLE, file, done, ctx);
}

int helpers_vdso_table(struct helpers *helpers, helpers_done done, void *ctx)
{
	const struct helpers_file vdso = {.path = "[vdso]"};

	(void)helpers;
	return add_file(FAKE_TABLE, &vdso, done, ctx);
}

void helpers_release(struct helpers *helpers, uint64_t key)
{
	(void)helpers;
	(void)key;
	fake_released++;
}

size_t fake_count_of(enum fake_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < fake_count; i++)
		n += fake_requests[i].kind == kind;
	return n;
}

struct fake_request *fake_last(enum fake_kind kind, uint32_t tgid)
{
	for (size_t i = fake_count; i; i--) {
		struct fake_request *r = &fake_requests[i - 1];

		if (r->kind == kind && !r->is_answered && (!tgid || r->tgid == tgid))
			return r;
	}
	return NULL;
}

void fake_answer(struct fake_request *r, const struct helpers_result *result)
{
	r->is_answered = true;
	r->done(r->ctx, result);
}

void fake_answer_scan(struct fake_request *r, const struct helpers_scan *scan)
{
	struct helpers_result result = {.scan = scan};

	fake_answer(r, &result);
}

void fake_fail(struct fake_request *r, int err, uint32_t unnamed)
{
	struct helpers_result result = {.err = err, .unnamed = unnamed, .text = "fake"};

	fake_answer(r, &result);
}

void fake_cancel_all(void)
{
	for (size_t i = 0; i < fake_count; i++) {
		if (!fake_requests[i].is_answered)
			fake_fail(&fake_requests[i], -ECANCELED, 0);
	}
}
