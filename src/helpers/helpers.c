// SPDX-License-Identifier: Apache-2.0
/* The interface: requests are made, queued, failed and given back here. A request is in exactly one
 * list, its state's, and in the table of tickets, until its callback has run. */
#include "helpers_inside.h"

#include "abi/reasons.h"
#include "elf/elf_debug.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STOP_WAIT_MS  100
#define START_WAIT_MS 5000

bool request_needs_reader(const struct request *r)
{
	return r->wire.op != WIRE_HOLD && r->wire.op != WIRE_RELEASE &&
	       r->wire.op != WIRE_PERFMAP_HOLD;
}

bool request_is_table(const struct request *r)
{
	return r->wire.op == WIRE_TABLE || r->wire.op == WIRE_VDSO_TABLE;
}

const char *const helpers_job_names[HELPERS_JOB_COUNT] = {
	[HELPERS_JOB_SCAN] = "scan",   [HELPERS_JOB_INSPECT] = "inspect",
	[HELPERS_JOB_NAMES] = "names", [HELPERS_JOB_LINES] = "lines",
	[HELPERS_JOB_TABLE] = "table", [HELPERS_JOB_SYMBOL_FILE] = "symbol_file",
};

enum helpers_job request_job(const struct request *r)
{
	switch (r->wire.op) {
	case WIRE_SCAN:
		return HELPERS_JOB_SCAN;
	case WIRE_INSPECT:
	case WIRE_PACKED_INFO:
		return HELPERS_JOB_INSPECT;
	case WIRE_PACK_DIGEST:
	case WIRE_DEBUG_DIGEST:
	case WIRE_PACK:
	case WIRE_DEBUG_PACK:
		return HELPERS_JOB_SYMBOL_FILE;
	case WIRE_TABLE:
	case WIRE_VDSO_TABLE:
		return HELPERS_JOB_TABLE;
	default:
		return wire_is_lines(r->wire.op) ? HELPERS_JOB_LINES : HELPERS_JOB_NAMES;
	}
}

static bool is_for_file(const struct request *r)
{
	switch (r->wire.op) {
	case WIRE_HOLD:
	case WIRE_INSPECT:
	case WIRE_NAMES:
	case WIRE_LINES:
	case WIRE_TABLE:
	case WIRE_PERFMAP_HOLD:
	case WIRE_PERFMAP:
	case WIRE_DEBUG:
	case WIRE_DEBUG_LINES:
	case WIRE_PACK_DIGEST:
	case WIRE_DEBUG_DIGEST:
	case WIRE_PACK:
	case WIRE_DEBUG_PACK:
		return true;
	default:
		return false;
	}
}

static bool is_for_process(const struct request *r)
{
	return r->wire.op == WIRE_SCAN || r->wire.op == WIRE_CONTEXT;
}

static struct request_list *list_of(struct helpers *h, const struct request *r)
{
	switch (r->state) {
	case REQUEST_AT_OPENER:
		return &h->opener;
	case REQUEST_AT_READER:
		return &h->reader;
	case REQUEST_FAILED:
		return &h->failed;
	case REQUEST_WAITING:
		return &h->waiting;
	default:
		if (wire_is_lines(r->wire.op))
			return &h->lines;
		if (request_is_table(r))
			return &h->tables;
		return request_needs_reader(r) ? &h->normal : &h->urgent;
	}
}

static bool is_under_way(const struct request *r)
{
	return r->state == REQUEST_AT_OPENER || r->state == REQUEST_AT_READER;
}

static void list_remove(struct helpers *h, struct request *r)
{
	struct request_list *list = list_of(h, r);

	if (r->prev)
		r->prev->next = r->next;
	else
		list->first = r->next;
	if (r->next)
		r->next->prev = r->prev;
	else
		list->last = r->prev;
	list->count--;
	list->bytes -= r->bytes;
	if (is_under_way(r) && request_needs_reader(r)) {
		h->tables_bound -= request_is_table(r);
		h->reader_bound--;
		h->reader_bound_bytes -= r->bytes;
	}
}

static void list_add(struct helpers *h, struct request *r, bool at_front)
{
	struct request_list *list = list_of(h, r);

	r->prev = at_front ? NULL : list->last;
	r->next = at_front ? list->first : NULL;
	if (r->prev)
		r->prev->next = r;
	else
		list->first = r;
	if (r->next)
		r->next->prev = r;
	else
		list->last = r;
	list->count++;
	list->bytes += r->bytes;
	if (is_under_way(r) && request_needs_reader(r)) {
		h->tables_bound += request_is_table(r);
		h->reader_bound++;
		h->reader_bound_bytes += r->bytes;
	}
}

void request_move(struct helpers *h, struct request *r, enum request_state state, bool at_front)
{
	uint64_t one = 1;
	ssize_t n = 0;

	list_remove(h, r);
	r->state = state;
	list_add(h, r, at_front);
	if (state == REQUEST_FAILED)
		n = write(h->event, &one, sizeof(one));
	(void)n; /* full means readable, which is all it is for */
}

struct request *request_again(struct helpers *h, struct request *r)
{
	size_t bytes = offsetof(struct request, wire) + r->bytes;
	struct request *copy = mem_alloc(MEM_HELPERS, bytes);

	if (!copy)
		return NULL;
	memcpy(copy, r, bytes);
	copy->wire.ticket = ++h->last_ticket;
	HASH_ADD(hh, h->by_ticket, wire.ticket, sizeof(copy->wire.ticket), copy);
	if (copy->is_lost) {
		mem_free(MEM_HELPERS, copy);
		return NULL;
	}
	list_remove(h, r);
	HASH_DEL(h->by_ticket, r);
	mem_free(MEM_HELPERS, r); /* its descriptor is the copy's now */
	copy->state = REQUEST_QUEUED;
	list_add(h, copy, true);
	return copy;
}

struct request *request_find(struct helpers *h, uint64_t ticket)
{
	struct request *r;

	HASH_FIND(hh, h->by_ticket, &ticket, sizeof(ticket), r);
	return r;
}

static void request_free(struct request *r)
{
	if (r->fd >= 0)
		close(r->fd);
	mem_free(MEM_HELPERS, r);
}

void request_finish(struct helpers *h, struct request *r, const struct helpers_result *result)
{
	helpers_done done = r->done;
	void *ctx = r->ctx;

	if (symbols_divert(h, r, result))
		return;
	list_remove(h, r);
	HASH_DEL(h->by_ticket, r);
	h->pending_bytes -= r->bytes;
	if (done)
		h->pending--;
	request_free(r);
	if (done)
		done(ctx, result);
}

void request_place(const struct request *r, struct helpers_result *ret)
{
	bool is_perfmap = r->wire.op == WIRE_PERFMAP || r->wire.op == WIRE_PERFMAP_HOLD;

	ret->dev = is_perfmap ? 0 : r->dev;
	ret->ino = is_perfmap ? 0 : r->ino;
	ret->stamp = is_perfmap ? r->ino : 0;
	ret->mtime_ns = r->mtime_ns;
	ret->is_layered = r->is_layered;
}

void request_fail(struct helpers *h, struct request *r, int err, uint32_t unnamed, const char *text)
{
	struct helpers_result result = {.err = err, .unnamed = unnamed, .text = text};

	request_place(r, &result);
	request_finish(h, r, &result);
}

/* ------------------------------------------------------------------ what is known to hang */

/* What its debug file does is not the file's fault. */
uint64_t request_blame_key(const struct request *r)
{
	return wire_is_debug(r->wire.op) ? r->wire.key | 1ULL << 62 : r->wire.key;
}

static enum bad_scope scope_of(const struct request *r)
{
	switch (r->wire.op) {
	case WIRE_LINES:
	case WIRE_DEBUG_LINES:
	case WIRE_FETCHED_LINES:
		return BAD_LINES;
	case WIRE_TABLE:
		return BAD_TABLE;
	case WIRE_CONTEXT:
		return BAD_CONTEXT;
	case WIRE_PACK_DIGEST:
	case WIRE_DEBUG_DIGEST:
	case WIRE_PACK:
	case WIRE_DEBUG_PACK:
		return BAD_PACK;
	default:
		return BAD_ALL;
	}
}

uint32_t request_is_bad(const struct helpers *h, const struct request *r)
{
	unsigned int hung = 0;

	for (size_t i = 0; i < HELPERS_BAD_MAX; i++) {
		const struct bad *b = &h->bad[i];
		bool is_same_process =
			b->tgid == r->wire.tgid && b->process_start_ns == r->wire.process_start_ns;

		if (!b->unnamed)
			continue;
		if (is_for_process(r)) {
			if (!b->key && is_same_process && (!b->scope || b->scope == scope_of(r)))
				return b->unnamed;
			continue;
		}
		if (!is_for_file(r) || !b->key || (b->scope && b->scope != scope_of(r)))
			continue;
		if (b->key == request_blame_key(r) && (b->is_open || r->wire.op != WIRE_HOLD))
			return b->unnamed;
		/* A process with two files that hang is not asked for a third. */
		if (b->is_open && is_same_process && ++hung >= 2)
			return b->unnamed;
	}
	return 0;
}

void request_blame(struct helpers *h, const struct request *r, uint32_t unnamed, bool is_open)
{
	enum bad_scope scope = is_open ? BAD_ALL : scope_of(r);

	if (!is_for_file(r) && !is_for_process(r))
		return;
	/* The reader gives up what takes long to compute: this was reading, and hangs elsewhere as
	 * well. */
	if (scope == BAD_PACK && unnamed == FLY_UNNAMED_READ_TIMEOUT)
		scope = BAD_ALL;
	h->bad[h->bad_next++ % HELPERS_BAD_MAX] = (struct bad){
		.key = is_for_process(r) ? 0 : request_blame_key(r),
		.tgid = r->wire.tgid,
		.process_start_ns = r->wire.process_start_ns,
		.unnamed = unnamed,
		.is_open = is_open,
		.scope = scope,
	};
}

/* ------------------------------------------------------------------ requests */

static int address_compare(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return x < y ? -1 : x > y;
}

/* text counts the NUL at its end. */
static struct request *request_new_text(uint32_t op, const char *path, size_t text,
					const uint64_t *addresses, size_t count)
{
	struct request *r;

	r = mem_alloc(MEM_HELPERS,
		      offsetof(struct request, rest) + text + count * sizeof(*addresses));
	if (!r)
		return NULL;
	r->fd = -1;
	r->wire.op = op;
	r->wire.text_bytes = (uint32_t)text;
	r->wire.count = (uint32_t)count;
	r->addresses_at = sizeof(r->wire) + text;
	r->bytes = r->addresses_at + count * sizeof(*addresses);
	memcpy(r->rest, path, text);
	if (count) {
		memcpy(r->rest + text, addresses, count * sizeof(*addresses));
		qsort(r->rest + text, count, sizeof(*addresses), address_compare);
	}
	return r;
}

static struct request *request_new(uint32_t op, const char *path, const uint64_t *addresses,
				   size_t count)
{
	return request_new_text(op, path, strlen(path) + 1, addresses, count);
}

static int submit(struct helpers *h, struct request *r, helpers_done done, void *ctx)
{
	if (!r)
		return -ENOMEM;
	if (h->is_stopping || (done && h->pending >= HELPERS_QUEUE_MAX) ||
	    h->pending_bytes + r->bytes > HELPERS_QUEUE_BYTES_MAX) {
		request_free(r);
		return h->is_stopping ? -ECANCELED : -EAGAIN;
	}
	r->done = done;
	r->ctx = ctx;
	r->wire.ticket = ++h->last_ticket;
	HASH_ADD(hh, h->by_ticket, wire.ticket, sizeof(r->wire.ticket), r);
	if (r->is_lost) {
		request_free(r);
		return -ENOMEM;
	}
	r->state = REQUEST_QUEUED;
	symbols_prepare(h, r);
	list_add(h, r, false);
	h->pending_bytes += r->bytes;
	if (done)
		h->pending++;
	if (r->state == REQUEST_WAITING)
		symbols_begin(h, r);
	helpers_send_queued(h);
	return 0;
}

int request_submit(struct helpers *h, struct request *r, helpers_done done, void *ctx)
{
	return submit(h, r, done, ctx);
}

struct request *request_clone(const struct request *r, uint32_t op)
{
	struct request *clone = request_new_text(op, r->rest, r->wire.text_bytes, NULL, 0);

	if (!clone)
		return NULL;
	clone->wire = r->wire;
	clone->wire.op = op;
	clone->wire.count = 0;
	return clone;
}

static void request_set_file(struct request *r, const struct helpers_file *file)
{
	if (!r)
		return;
	r->wire.key = file->key;
	r->wire.tgid = file->tgid;
	r->wire.process_start_ns = file->process_start_ns;
	r->wire.start = file->start;
	r->wire.end = file->end;
	r->wire.ino = file->ino;
	r->wire.build_id_len = file->build_id_len;
	memcpy(r->wire.build_id, file->build_id, file->build_id_len);
}

static const char *path_of(const struct helpers_file *file)
{
	return file->path && strlen(file->path) < WIRE_PATH_MAX ? file->path : "";
}

static bool is_valid(const struct helpers_file *file, size_t count)
{
	return file->tgid && file->build_id_len <= ELF_BUILD_ID_MAX && count <= WIRE_NAMES_MAX;
}

static int submit_file(struct helpers *h, uint32_t op, const struct helpers_file *file,
		       const uint64_t *addresses, size_t count, helpers_done done, void *ctx)
{
	struct request *r;

	if (!is_valid(file, count))
		return -EINVAL;
	r = request_new(op, path_of(file), addresses, count);
	request_set_file(r, file);
	return submit(h, r, done, ctx);
}

int helpers_hold(struct helpers *h, const struct helpers_file *file, helpers_done done, void *ctx)
{
	return submit_file(h, WIRE_HOLD, file, NULL, 0, done, ctx);
}

int helpers_inspect(struct helpers *h, const struct helpers_file *file, helpers_done done,
		    void *ctx)
{
	return submit_file(h, WIRE_INSPECT, file, NULL, 0, done, ctx);
}

int helpers_names(struct helpers *h, const struct helpers_file *file, const uint64_t *vaddrs,
		  size_t count, helpers_done done, void *ctx)
{
	return count ? submit_file(h, WIRE_NAMES, file, vaddrs, count, done, ctx) : -EINVAL;
}

/* Adds a path behind its letter; one that finds no room is left out. */
static int candidate_add(void *ctx, enum elf_debug_kind kind, const char *path)
{
	struct buf *text = ctx;
	const char *letters = kind == ELF_DEBUG_LINK ? "L" : "BH";

	for (; *letters; letters++) {
		if (text->len + strlen(path) + 2 > WIRE_PATH_MAX)
			continue;
		buf_add(text, letters, 1);
		buf_add(text, path, strlen(path) + 1);
	}
	return 0;
}

/* "HEX PATH" into links; what is none of that is left out. */
static void set_supplement(struct elf_debug_links *links, const char *text)
{
	size_t digits = strspn(text, "0123456789abcdef"), len = digits / 2;

	if (digits % 2 || !len || len > ELF_BUILD_ID_MAX || text[digits] != ' ' ||
	    strlen(text + digits + 1) >= sizeof(links->supplement))
		return;
	for (size_t i = 0; i < len; i++) {
		const char byte[3] = {text[2 * i], text[2 * i + 1], 0};

		links->supplement_id[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	links->supplement_id_len = (uint8_t)len;
	memcpy(links->supplement, text + digits + 1, strlen(text + digits + 1) + 1);
}

/* Of op, with the paths of what may be the file's debug file. -ENOENT: there are none. */
static int submit_debug(struct helpers *h, uint32_t op, const struct helpers_file *file,
			const struct elf_info *info, const struct elf_debug_links *links,
			const uint64_t *vaddrs, size_t count, helpers_done done, void *ctx)
{
	const char *path = path_of(file);
	struct request *r = NULL;
	struct buf text;
	size_t own;

	buf_init(&text, MEM_HELPERS, WIRE_PATH_MAX + 1);
	buf_add(&text, path, strlen(path) + 1);
	own = text.len;
	elf_debug_candidates(info, links, path, candidate_add, &text);
	if (!text.err && text.len > own)
		r = request_new_text(op, text.data, text.len, vaddrs, count);
	own = text.err || text.len > own ? 0 : own;
	buf_done(&text);
	if (own)
		return -ENOENT;
	request_set_file(r, file);
	return submit(h, r, done, ctx);
}

int helpers_debug_names(struct helpers *h, const struct helpers_file *file,
			const struct elf_info *info, const char *link, const uint64_t *vaddrs,
			size_t count, helpers_done done, void *ctx)
{
	struct elf_debug_links links = {0};

	if (!is_valid(file, count) || !count || strlen(link) >= sizeof(links.name))
		return -EINVAL;
	memcpy(links.name, link, strlen(link) + 1);
	return submit_debug(h, WIRE_DEBUG, file, info, &links, vaddrs, count, done, ctx);
}

static int submit_fetched(struct helpers *h, uint32_t op, int fd, const uint8_t *build_id,
			  size_t build_id_len, const uint64_t *vaddrs, size_t count,
			  helpers_done done, void *ctx)
{
	struct request *r;

	if (!build_id_len || build_id_len > ELF_BUILD_ID_MAX)
		return -EINVAL;
	r = request_new(op, "", vaddrs, count);
	if (r) {
		r->wire.build_id_len = (uint8_t)build_id_len;
		memcpy(r->wire.build_id, build_id, build_id_len);
		r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 10);
		if (r->fd < 0) {
			mem_free(MEM_HELPERS, r);
			return -errno;
		}
	}
	return submit(h, r, done, ctx);
}

int helpers_fetched_names(struct helpers *h, int fd, const uint8_t *build_id, size_t build_id_len,
			  const uint64_t *vaddrs, size_t count, helpers_done done, void *ctx)
{
	if (!count || count > WIRE_NAMES_MAX)
		return -EINVAL;
	return submit_fetched(h, WIRE_FETCHED, fd, build_id, build_id_len, vaddrs, count, done,
			      ctx);
}

int helpers_lines(struct helpers *h, const struct helpers_file *file, const uint64_t *vaddrs,
		  size_t count, helpers_done done, void *ctx)
{
	if (!count || count > HELPERS_LINES_MAX)
		return -EINVAL;
	return submit_file(h, WIRE_LINES, file, vaddrs, count, done, ctx);
}

int helpers_debug_lines(struct helpers *h, const struct helpers_file *file,
			const struct elf_info *info, const char *link, const char *supplement,
			const uint64_t *vaddrs, size_t count, helpers_done done, void *ctx)
{
	struct elf_debug_links links = {0};

	if (!is_valid(file, count) || !count || count > HELPERS_LINES_MAX ||
	    strlen(link) >= sizeof(links.name))
		return -EINVAL;
	memcpy(links.name, link, strlen(link) + 1);
	set_supplement(&links, supplement);
	return submit_debug(h, WIRE_DEBUG_LINES, file, info, &links, vaddrs, count, done, ctx);
}

int helpers_fetched_lines(struct helpers *h, int fd, const uint8_t *build_id, size_t build_id_len,
			  const uint64_t *vaddrs, size_t count, helpers_done done, void *ctx)
{
	if (!count || count > HELPERS_LINES_MAX)
		return -EINVAL;
	return submit_fetched(h, WIRE_FETCHED_LINES, fd, build_id, build_id_len, vaddrs, count,
			      done, ctx);
}

int helpers_table(struct helpers *h, const struct helpers_file *file, uint64_t bytes_max,
		  helpers_done done, void *ctx)
{
	if (!bytes_max)
		return -EINVAL;
	if (bytes_max > HELPERS_TABLE_BYTES_MAX)
		bytes_max = HELPERS_TABLE_BYTES_MAX;
	return submit_file(h, WIRE_TABLE, file, &bytes_max, 1, done, ctx);
}

int helpers_vdso_table(struct helpers *h, helpers_done done, void *ctx)
{
	const uint64_t bytes_max = HELPERS_TABLE_BYTES_MAX;

	return submit(h, request_new(WIRE_VDSO_TABLE, "", &bytes_max, 1), done, ctx);
}

int helpers_vdso_names(struct helpers *h, const uint64_t *offsets, size_t count, helpers_done done,
		       void *ctx)
{
	if (!count || count > WIRE_NAMES_MAX)
		return -EINVAL;
	return submit(h, request_new(WIRE_VDSO, "", offsets, count), done, ctx);
}

int helpers_scan(struct helpers *h, uint32_t tgid, helpers_done done, void *ctx)
{
	struct request *r;

	if (!tgid)
		return -EINVAL;
	r = request_new(WIRE_SCAN, "", NULL, 0);
	if (r)
		r->wire.tgid = tgid;
	return submit(h, r, done, ctx);
}

/* Above all keys of files; a PID has 22 bits, the start counts hundredths of a second. */
static uint64_t perfmap_key(uint32_t tgid, uint64_t start_ns)
{
	return 1ULL << 63 | (start_ns / 10000000 << 22 & INT64_MAX) | tgid;
}

int helpers_context(struct helpers *h, uint32_t tgid, uint64_t process_start_ns, helpers_done done,
		    void *ctx)
{
	struct request *r;

	if (!tgid)
		return -EINVAL;
	r = request_new(WIRE_CONTEXT, "", NULL, 0);
	if (r) {
		r->wire.tgid = tgid;
		r->wire.process_start_ns = process_start_ns;
	}
	return submit(h, r, done, ctx);
}

static int submit_perfmap(struct helpers *h, struct request *r, uint32_t tgid, uint64_t start_ns,
			  helpers_done done, void *ctx)
{
	if (r) {
		r->wire.key = perfmap_key(tgid, start_ns);
		r->wire.tgid = tgid;
		r->wire.process_start_ns = start_ns;
	}
	return submit(h, r, done, ctx);
}

int helpers_perfmap_hold(struct helpers *h, uint32_t tgid, uint64_t process_start_ns,
			 helpers_done done, void *ctx)
{
	if (!tgid)
		return -EINVAL;
	return submit_perfmap(h, request_new(WIRE_PERFMAP_HOLD, "", NULL, 0), tgid,
			      process_start_ns, done, ctx);
}

int helpers_perfmap_names(struct helpers *h, uint32_t tgid, uint64_t process_start_ns,
			  uint64_t known_stamp, const uint64_t *addresses, size_t count,
			  helpers_done done, void *ctx)
{
	struct request *r;

	if (!tgid || !count || count > WIRE_NAMES_MAX)
		return -EINVAL;
	r = request_new(WIRE_PERFMAP, "", addresses, count);
	if (r)
		r->wire.ino = known_stamp;
	return submit_perfmap(h, r, tgid, process_start_ns, done, ctx);
}

void helpers_release(struct helpers *h, uint64_t key)
{
	struct request *r = request_new(WIRE_RELEASE, "", NULL, 0);

	/* Without memory it stays until the opener has better use for its place. */
	if (!r)
		return;
	r->wire.key = key;
	submit(h, r, NULL, NULL);
}

/* ------------------------------------------------------------------ running */

static void failures_tell(struct helpers *h)
{
	/* What callbacks add in the meantime waits for the next poll. */
	size_t count = h->failed.count;
	uint64_t n;
	ssize_t got = read(h->event, &n, sizeof(n));

	(void)got; /* empty is fine */
	while (count-- && h->failed.first) {
		struct request *r = h->failed.first;
		uint32_t unnamed = r->unnamed;

		request_fail(h, r, unnamed == FLY_UNNAMED_HELPER_LIMIT ? -EBUSY : -ETIMEDOUT,
			     unnamed,
			     unnamed == FLY_UNNAMED_HELPER_LIMIT
				     ? "too many helper processes are stuck"
				     : "this file or process was given up before");
	}
}

int helpers_poll(struct helpers *h)
{
	if (h->is_polling)
		return -EBUSY;
	h->is_polling = true;
	helpers_drain(h);
	helpers_enforce(h, clock_monotonic_ns());
	failures_tell(h);
	h->is_reader_full = false;
	helpers_send_queued(h);
	h->is_polling = false;
	return 0;
}

int helpers_fd(const struct helpers *h)
{
	return h->epoll;
}

static int epoll_open(struct helpers *h, struct why *why)
{
	struct epoll_event event = {.events = EPOLLIN};

	h->epoll = epoll_create1(EPOLL_CLOEXEC);
	h->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->epoll < 0 || h->event < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->event, &event) ||
	    epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->requests, &event) ||
	    epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->answers, &event))
		return why_set(why, -errno, "epoll: %s", strerror(errno));
	return 0;
}

/* Both must say that they are ready: whatever keeps them from starting is told at once. */
static int wait_until_ready(struct helpers *h, struct why *why)
{
	uint64_t end = clock_monotonic_ns() + START_WAIT_MS * 1000000ULL;

	for (;;) {
		struct pollfd p = {.fd = h->epoll, .events = POLLIN};
		bool is_ready = true;

		helpers_drain(h);
		for (int i = 0; i < HELPER_KINDS; i++) {
			struct helper *helper = &h->helper[i];

			if (helper->is_ready)
				continue;
			is_ready = false;
			if (helper->last_words[0] || helper_has_ended(h, (enum helper_kind)i))
				return why_set(
					why, -EPERM, "%s did not start%s%s",
					i == HELPER_OPENER ? "flyball-opener" : "flyball-reader",
					helper->last_words[0] ? ": " : "", helper->last_words);
		}
		if (is_ready)
			return 0;
		if (clock_monotonic_ns() > end)
			return why_set(why, -ETIMEDOUT, "the helper processes did not start");
		poll(&p, 1, 50);
	}
}

int helpers_start(const struct helpers_options *options, struct helpers **ret, struct why *why)
{
	struct helpers *h = mem_alloc(MEM_HELPERS, sizeof(*h));
	unsigned int ms =
		options && options->deadline_ms ? options->deadline_ms : HELPERS_DEADLINE_MS;
	int err;

	if (!h)
		return why_set(why, -ENOMEM, "out of memory");
	h->epoll = h->event = h->requests = h->requests_end = h->answers = -1;
	h->answers_end = h->jobs = h->jobs_end = h->symbols.directory = -1;
	h->deadline_ns = ms * 1000000ULL;
	for (int i = 0; i < HELPER_KINDS; i++)
		h->helper[i].pid = h->helper[i].pidfd = -1;
	buf_init(&h->answer, MEM_HELPERS, WIRE_ANSWER_MAX);
	err = helpers_find_directory(h, options ? options->directory : NULL, why);
	if (!err)
		err = helpers_open_pairs(h, why);
	if (!err)
		err = epoll_open(h, why);
	for (int i = 0; !err && i < HELPER_KINDS; i++)
		err = helper_spawn(h, (enum helper_kind)i, why);
	if (!err)
		err = wait_until_ready(h, why);
	if (err) {
		helpers_stop(h);
		return err;
	}
	*ret = h;
	return 0;
}

static void cancel_all(struct helpers *h)
{
	struct request_list *lists[] = {&h->urgent, &h->normal, &h->tables, &h->lines,
					&h->opener, &h->reader, &h->failed, &h->waiting};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		while (lists[i]->first)
			request_fail(h, lists[i]->first, -ECANCELED, FLY_UNNAMED_NO_TIME,
				     "the helpers were stopped");
	}
}

/* A killed process goes in a millisecond, or (held by a file system) not before that lets it. */
static void wait_for_dying(struct helpers *h)
{
	uint64_t limit =
		h->deadline_ns / 1000000 < STOP_WAIT_MS ? h->deadline_ns / 1000000 : STOP_WAIT_MS;
	uint64_t end = clock_monotonic_ns() + limit * 1000000ULL, now;

	helper_reap_dying(h);
	while (h->dying_count > helper_stuck_count(h) && (now = clock_monotonic_ns()) < end) {
		struct pollfd p[HELPERS_DYING_MAX];
		size_t n = 0;

		for (size_t i = 0; i < h->dying_count; i++) {
			if (h->dying[i].pidfd >= 0)
				p[n++] = (struct pollfd){.fd = h->dying[i].pidfd, .events = POLLIN};
		}
		poll(p, n, (int)((end - now) / 1000000) + 1);
		helper_reap_dying(h);
	}
	for (size_t i = 0; i < h->dying_count; i++) {
		if (h->dying[i].pidfd >= 0)
			close(h->dying[i].pidfd);
	}
}

void helpers_stop(struct helpers *h)
{
	if (!h)
		return;
	h->is_stopping = true;
	for (int i = 0; i < HELPER_KINDS; i++)
		helper_kill(h, (enum helper_kind)i);
	cancel_all(h);
	wait_for_dying(h);
	buf_done(&h->answer);
	helpers_close_pairs(h);
	symbols_done(h);
	mem_free(MEM_HELPERS, h);
}

void helpers_stats_get(struct helpers *h, struct helpers_stats *ret)
{
	*ret = (struct helpers_stats){
		.opener_restarts = h->restarts[HELPER_OPENER],
		.reader_restarts = h->restarts[HELPER_READER],
		.stuck = helper_stuck_count(h),
		.own_user_ns = h->ended_user_ns,
		.own_system_ns = h->ended_system_ns,
		.pending = h->pending,
	};
	memcpy(ret->jobs, h->jobs_done, sizeof(ret->jobs));
	for (int i = 0; i < HELPER_KINDS; i++) {
		uint64_t user, system;

		helper_state(&h->helper[i], &user, &system);
		ret->own_user_ns += user;
		ret->own_system_ns += system;
		ret->anon_bytes += helper_anon_bytes(&h->helper[i]);
	}
}
