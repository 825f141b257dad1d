// SPDX-License-Identifier: Apache-2.0
/* Packets and deadlines. Whoever owes the oldest answer is working on it; from the last sign of
 * progress it has deadline_ns of time, more only while it is runnable and starved of CPU. */
#include "helpers_inside.h"

#include "abi/reasons.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

/* On their way at once. Small enough that no queue is ever full, large enough to keep both busy. */
#define OPENER_WINDOW	    64
#define OPENER_WINDOW_BYTES (128U << 10)
#define READER_WINDOW	    16
#define READER_WINDOW_BYTES (96U << 10)
#define DRAIN_MAX	    4096 /* packets in one go */
#define START_NS	    3000000000ULL
#define STARVED_FACTOR	    5
#define TRIES_MAX	    20
#define KILLS_MAX	    2
#define BURY_NS		    10000000ULL /* between looks for ended helpers */

static bool has_room(const struct helpers *h, const struct request *r)
{
	const struct request_list *o = &h->opener;

	if (o->count >= OPENER_WINDOW || (o->count && o->bytes + r->bytes > OPENER_WINDOW_BYTES))
		return false;
	if (!request_needs_reader(r))
		return true;
	if (h->is_reader_full)
		return false;
	return !h->reader_bound || (h->reader_bound < READER_WINDOW &&
				    h->reader_bound_bytes + r->bytes <= READER_WINDOW_BYTES);
}

static void note_progress(struct helper *helper, uint64_t now)
{
	helper->progress_ns = now;
	helper->has_cpu_mark = false;
}

static ssize_t send_packet(struct helpers *h, const struct request *r)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
	struct iovec part = {(void *)&r->wire, r->bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (r->fd >= 0) {
		struct cmsghdr *c;

		message.msg_control = control;
		message.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &r->fd, sizeof(int));
	}
	return sendmsg(h->requests, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* False when no more can be sent now. */
static bool send_one(struct helpers *h, struct request *r)
{
	uint32_t bad = request_is_bad(h, r);

	if (bad) {
		r->unnamed = bad;
		request_move(h, r, REQUEST_FAILED, false);
		return true;
	}
	if (!helper_is_running(h, HELPER_OPENER) ||
	    (request_needs_reader(r) && !helper_is_running(h, HELPER_READER))) {
		/* Soon to be back, unless stuck ones stand in the way or it will not start. */
		if (helper_stuck_count(h) < HELPERS_STUCK_MAX && h->helper[0].failures < 4 &&
		    h->helper[1].failures < 4)
			return false;
		r->unnamed = FLY_UNNAMED_HELPER_LIMIT;
		request_move(h, r, REQUEST_FAILED, false);
		return true;
	}
	if (!has_room(h, r))
		return false;
	if (send_packet(h, r) < 0)
		return false;
	if (!h->opener.count)
		note_progress(&h->helper[HELPER_OPENER], clock_monotonic_ns());
	request_move(h, r, REQUEST_AT_OPENER, false);
	return true;
}

/* What the reader should get next. A table may take a hundred milliseconds, and names wait behind
 * it: no two of them at once. */
static struct request *next_for_reader(const struct helpers *h)
{
	struct request *table = h->tables_bound ? NULL : h->tables.first;

	if (table && h->normal.first && h->since_table < HELPERS_NAMES_PER_TABLE)
		table = NULL;
	return table ? table : h->normal.first;
}

void helpers_send_queued(struct helpers *h)
{
	struct request *r;

	while (h->urgent.first && send_one(h, h->urgent.first))
		;
	while ((r = next_for_reader(h)) != NULL) {
		bool is_table = request_is_table(r);

		if (!send_one(h, r))
			break;
		h->since_table = is_table ? 0 : h->since_table + 1;
	}
	/* One at a time, when the reader has nothing else to do. */
	if (h->lines.first && !h->normal.first && !h->tables.first && !h->reader_bound)
		send_one(h, h->lines.first);
}

static void ack_take(struct helpers *h, const struct wire_ack *ack)
{
	struct helper *opener = &h->helper[HELPER_OPENER];
	uint64_t now = clock_monotonic_ns();
	struct helpers_result result = {0};
	char text[WIRE_TEXT_MAX];
	struct request *r;

	text_print(ack->text, strnlen(ack->text, sizeof(ack->text)), text, sizeof(text));
	note_progress(opener, now);
	if (ack->ticket == WIRE_TICKET_NONE) {
		opener->is_ready = !ack->err;
		memcpy(opener->last_words, text, sizeof(text));
		return;
	}
	opener->has_worked = true;
	opener->failures = 0;
	r = request_find(h, ack->ticket);
	if (!r || r->state == REQUEST_QUEUED || r->state == REQUEST_FAILED)
		return;
	if (ack->state == WIRE_ACK_BUSY) {
		h->is_reader_full = true;
		if (++r->tries > TRIES_MAX)
			request_fail(h, r, -EAGAIN, FLY_UNNAMED_READER_FAILED,
				     "the reader does not keep up");
		else
			request_move(h, r, REQUEST_QUEUED, true);
		return;
	}
	r->dev = ack->dev;
	r->ino = ack->ino;
	r->mtime_ns = ack->mtime_ns;
	r->is_layered = ack->is_layered;
	if (ack->state == WIRE_ACK_PASSED) {
		if (!h->reader.count)
			note_progress(&h->helper[HELPER_READER], now);
		request_move(h, r, REQUEST_AT_READER, false);
		return;
	}
	result.err = ack->err < 0 && ack->err > -4096 ? ack->err : 0;
	result.unnamed = ack->unnamed < FLY_UNNAMED_COUNT ? ack->unnamed : 0;
	if (result.err && !result.unnamed)
		result.unnamed = FLY_UNNAMED_FILE_DENIED;
	result.text = text;
	request_place(r, &result);
	request_finish(h, r, &result);
}

static void acks_drain(struct helpers *h)
{
	for (int i = 0; i < DRAIN_MAX; i++) {
		struct wire_ack ack;
		ssize_t n = recv(h->requests, &ack, sizeof(ack), MSG_DONTWAIT);

		if (n < 0)
			return;
		if (n == (ssize_t)sizeof(ack))
			ack_take(h, &ack);
	}
}

/* It said what it should not be able to say: it is somebody else's now. */
static void reader_distrust(struct helpers *h, struct request *r)
{
	if (r) {
		request_blame(h, r, FLY_UNNAMED_READER_FAILED, false);
		request_fail(h, r, -EBADMSG, FLY_UNNAMED_READER_FAILED,
			     "the reader's answer failed its checks");
	}
	h->helper[HELPER_READER].has_worked = true;
	helper_kill(h, HELPER_READER);
}

static void answer_take(struct helpers *h, struct request *r)
{
	const char *asked = (const char *)&r->wire + r->addresses_at;
	struct helpers_answer answer;
	uint64_t *copy = NULL;
	int err;

	/* The addresses stand behind a text of any length. */
	if (r->wire.count) {
		copy = mem_array(MEM_HELPERS, r->wire.count, sizeof(*copy));
		if (!copy) {
			request_fail(h, r, -ENOMEM, FLY_UNNAMED_READER_FAILED, "out of memory");
			return;
		}
		memcpy(copy, asked, r->wire.count * sizeof(*copy));
	}
	err = helpers_answer_check(h->answer.data, h->answer.len, r->wire.op, r->wire.tgid, copy,
				   r->wire.count, &answer);
	mem_free(MEM_HELPERS, copy);
	if (err == -ENOMEM) {
		request_fail(h, r, err, FLY_UNNAMED_READER_FAILED, "out of memory");
		return;
	}
	if (err) {
		reader_distrust(h, r);
		return;
	}
	request_place(r, &answer.result);
	request_finish(h, r, &answer.result);
	helpers_answer_done(&answer);
}

static void job_count(struct helpers *h, const struct request *r, uint64_t ns)
{
	struct helpers_job_stats *done = &h->jobs_done[request_job(r)];
	uint64_t most = h->deadline_ns * (STARVED_FACTOR + 1);

	ns = ns < most ? ns : most; /* it may say anything */
	done->jobs++;
	done->busy_ns += ns;
	if (ns > done->longest_ns)
		done->longest_ns = ns;
}

static void part_take(struct helpers *h, const struct wire_part *part, const char *data,
		      size_t bytes)
{
	struct helper *reader = &h->helper[HELPER_READER];
	struct request *r;

	if (part->bytes != bytes || part->is_last > 1) {
		reader_distrust(h, NULL);
		return;
	}
	if (part->ticket == WIRE_TICKET_NONE) {
		reader->is_ready = !bytes;
		text_print(data, bytes, reader->last_words, sizeof(reader->last_words));
		note_progress(reader, clock_monotonic_ns());
		return;
	}
	if (part->ticket != h->answer_ticket) {
		buf_reset(&h->answer);
		h->answer_ticket = part->ticket;
	}
	buf_add(&h->answer, data, bytes);
	if (!part->is_last)
		return;
	note_progress(reader, clock_monotonic_ns());
	reader->has_worked = true;
	reader->failures = 0;
	h->is_reader_full = false;
	h->answer_ticket = WIRE_TICKET_NONE;
	r = request_find(h, part->ticket);
	/* The opener's ack was sent before the job was. */
	if (r && r->state == REQUEST_AT_OPENER) {
		acks_drain(h);
		r = request_find(h, part->ticket);
	}
	/* One given up meanwhile is nobody's. */
	if (!r)
		return;
	if (r->state != REQUEST_AT_READER) {
		reader_distrust(h, NULL);
		return;
	}
	job_count(h, r, part->spent_ns);
	if (h->answer.err)
		reader_distrust(h, r);
	else
		answer_take(h, r);
	if (h->answer.cap > 4U * WIRE_PART_MAX) {
		buf_done(&h->answer);
		buf_init(&h->answer, MEM_HELPERS, WIRE_ANSWER_MAX);
	}
}

static void answers_drain(struct helpers *h)
{
	static char packet[sizeof(struct wire_part) + WIRE_PART_MAX];

	for (int i = 0; i < DRAIN_MAX; i++) {
		ssize_t n = recv(h->answers, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
		struct wire_part part;

		if (n < 0)
			return;
		if (n < (ssize_t)sizeof(part) || n > (ssize_t)sizeof(packet)) {
			reader_distrust(h, NULL);
			continue;
		}
		memcpy(&part, packet, sizeof(part));
		part_take(h, &part, packet + sizeof(part), (size_t)n - sizeof(part));
	}
}

void helpers_drain(struct helpers *h)
{
	acks_drain(h);
	answers_drain(h);
}

static struct request_list *owed_by(struct helpers *h, enum helper_kind kind)
{
	return kind == HELPER_OPENER ? &h->opener : &h->reader;
}

/* Still computing what it was asked, on a machine that gives it no CPU: runnable, and since a
 * quarter of the deadline it got less than half of the time. */
static bool is_starved(struct helpers *h, const struct helper *helper, uint64_t waited_ns)
{
	uint64_t user, system;
	char state;

	if (!helper->has_cpu_mark || waited_ns >= h->deadline_ns * STARVED_FACTOR)
		return false;
	state = helper_state(helper, &user, &system);
	return state == 'R' && user + system - helper->cpu_mark_ns < h->deadline_ns / 2;
}

static void enforce_one(struct helpers *h, enum helper_kind kind, uint64_t now)
{
	struct helper *helper = &h->helper[kind];
	struct request_list *owed = owed_by(h, kind);
	uint64_t waited = now > helper->progress_ns ? now - helper->progress_ns : 0;
	struct request *r = owed->first;

	if (!helper_is_running(h, kind))
		return;
	if (!helper->is_ready) {
		if (now - helper->spawned_ns > START_NS + h->deadline_ns)
			helper_kill(h, kind);
		return;
	}
	if (r && waited >= h->deadline_ns / 4 && !helper->has_cpu_mark) {
		helper->has_cpu_mark = waited < h->deadline_ns;
		helper->cpu_mark_ns = helper_cpu_ns(helper);
	}
	if (!r || waited < h->deadline_ns || is_starved(h, helper, waited))
		return;
	helper->has_worked = true;
	helper_kill(h, kind);
	if (kind == HELPER_OPENER) {
		request_blame(h, r, FLY_UNNAMED_OPEN_TIMEOUT, true);
		request_fail(h, r, -ETIMEDOUT, FLY_UNNAMED_OPEN_TIMEOUT,
			     "opening did not end within its deadline");
	} else {
		job_count(h, r, waited);
		request_blame(h, r, FLY_UNNAMED_READ_TIMEOUT, false);
		request_fail(h, r, -ETIMEDOUT, FLY_UNNAMED_READ_TIMEOUT,
			     "reading did not end within its deadline");
	}
}

/* A helper that ended by itself: the request it was at is to blame, if there was one. One that
 * somebody killed (the kernel for want of memory, an operator) is to be forgiven: tried again. */
static void bury_one(struct helpers *h, enum helper_kind kind)
{
	struct request *r;

	if (!helper_has_ended(h, kind))
		return;
	/* It may have answered before it went. */
	helpers_drain(h);
	r = owed_by(h, kind)->first;
	if (!r)
		return;
	if (h->helper[kind].ended_by == SIGKILL) {
		if (r->kills++ >= KILLS_MAX || !request_again(h, r))
			request_fail(h, r, -EIO, FLY_UNNAMED_READER_FAILED,
				     "the helper process was killed while it worked on this");
		return;
	}
	request_blame(h, r, FLY_UNNAMED_READER_FAILED, false);
	request_fail(h, r, -EIO, FLY_UNNAMED_READER_FAILED,
		     "the helper process ended while it worked on this");
}

void helpers_enforce(struct helpers *h, uint64_t now)
{
	bool is_due = now - h->buried_ns >= BURY_NS;

	if (is_due)
		h->buried_ns = now;
	for (int kind = 0; kind < HELPER_KINDS; kind++) {
		if (is_due)
			bury_one(h, (enum helper_kind)kind);
		enforce_one(h, (enum helper_kind)kind, now);
	}
	if (h->dying_count)
		helper_reap_dying(h);
	helper_revive(h, now);
}
