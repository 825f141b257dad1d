// SPDX-License-Identifier: Apache-2.0
/*
 * replay_stacks PID COUNT [SECONDS]: stops threads of a running process at any moment, COUNT times,
 * and walks each stack twice over the same bytes: by our tables, with the walker that BPF runs, and
 * by libdw. One line of JSON says how they agree; what differs is shown on stderr, 20 at most.
 *
 *	stacks     walked by both           same, wrong, short   enum cli_verdict
 *	judged     libdw found all its frames by call frame information
 *	deeper     ours goes on past libdw  whole, libdw_whole   came to an end
 *	deep       beyond our limit         cuts                 why ours ended, the rest
 *	failed     a thread or the process was gone
 *
 * Exit status: 0, 2 usage, 3 nothing could be walked.
 */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli_unwind_stack.h"

#define SHOWN	     20
#define THREADS_MAX  4096
#define PAUSE_MAX_NS 3000000U

static const char *const cut_names[FLY_CUT_COUNT] = {
#define CUT(ID, name, text, advice) #name,
#include "abi/reasons.def"
};

struct totals {
	unsigned long stacks, verdicts[3], judged, deeper, whole, libdw_whole, deep, frames, failed;
	unsigned long cuts[FLY_CUT_COUNT];
};

static struct cli_picture picture;
static struct cli_judge *judge;
static uint64_t maps_seen;
static struct unwind_stack ours;
static struct cli_judgement libdw;
static uint64_t seed = 0x9e3779b97f4a7c15ULL;

static uint32_t any(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 32) % below;
}

static uint64_t maps_hash(pid_t pid)
{
	uint64_t hash = 0xcbf29ce484222325ULL;
	char path[64], bytes[65536];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	while (f && (n = fread(bytes, 1, sizeof(bytes), f)) > 0) {
		for (size_t i = 0; i < n; i++)
			hash = (hash ^ (uint8_t)bytes[i]) * 0x100000001b3ULL;
	}
	if (f)
		fclose(f);
	return hash;
}

/* What is mapped may change at any time; a picture is of one moment. */
static int look(pid_t pid, struct why *why)
{
	uint64_t now = maps_hash(pid);
	int err;

	if (judge && now == maps_seen)
		return 0;
	cli_judge_free(judge);
	judge = NULL;
	cli_picture_close(&picture);
	err = cli_picture_open(pid, &picture, why);
	if (!err)
		err = cli_judge_new(&picture, pid, &judge, why);
	maps_seen = now;
	return err;
}

static pid_t thread_any(pid_t pid)
{
	static pid_t tids[THREADS_MAX];
	uint32_t count = 0;
	char path[64];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	while (d && count < THREADS_MAX && (e = readdir(d)) != NULL) {
		uint64_t tid;

		if (!text_parse_u64(e->d_name, 1, INT32_MAX, &tid))
			tids[count++] = (pid_t)tid;
	}
	if (d)
		closedir(d);
	return count ? tids[any(count)] : 0;
}

static void show(enum cli_verdict verdict, uint32_t depth)
{
	static unsigned int shown;
	uint32_t from = depth > 2 ? depth - 2 : 0;

	if (shown++ >= SHOWN)
		return;
	fprintf(stderr, "%s at frame %u of %u, libdw has %u (%s); ours ends %s\n",
		verdict == CLI_VERDICT_WRONG ? "wrong" : "short", depth, ours.count,
		libdw.stack.count, libdw.stack.is_whole ? "whole" : "lost",
		ours.is_whole ? "whole" : cut_names[ours.cut]);
	for (uint32_t i = from; i < depth + 3 && (i < ours.count || i < libdw.stack.count); i++) {
		const struct unwind_stack *both[2] = {&ours, &libdw.stack};

		fprintf(stderr, "  %4u", i);
		for (int k = 0; k < 2; k++) {
			uint64_t at = i < both[k]->count ? both[k]->frames[i] : 0;
			const struct cli_mapping *m = cli_picture_find(&picture, at - 1);
			const char *name = at ? cli_judge_name(judge, at - 1) : NULL;

			fprintf(stderr, "  %#" PRIx64 " %s+%#" PRIx64 " %s", at,
				m ? picture.files[m->file].name : "-",
				m ? at - picture.files[m->file].bias : 0, name ? name : "?");
		}
		fputc('\n', stderr);
	}
}

static void judge_one(struct totals *t)
{
	uint32_t depth = 0;
	enum cli_verdict verdict = cli_stack_compare(&ours, &libdw, &depth);

	t->stacks++;
	t->verdicts[verdict]++;
	t->frames += ours.count;
	t->judged += libdw.judged == libdw.stack.count;
	t->whole += ours.is_whole;
	t->libdw_whole += libdw.stack.is_whole;
	t->deep += !ours.is_whole && ours.cut == FLY_CUT_DEPTH_LIMIT;
	t->deeper += verdict == CLI_VERDICT_SAME && ours.count > libdw.stack.count;
	if (!ours.is_whole && ours.cut < FLY_CUT_COUNT)
		t->cuts[ours.cut]++;
	if (verdict == CLI_VERDICT_SAME)
		return;
	show(verdict, depth);
}

/* False: it failed. */
static bool walk_one(pid_t pid, struct totals *t, struct why *why)
{
	struct unwind_thread thread;
	struct cli_memory memory = {0};
	pid_t tid = thread_any(pid);
	bool is_done = tid && !look(pid, why) && !cli_memory_init(&memory, pid) &&
		       !cli_thread_walk(tid, &picture, &memory, &thread, &ours, why) &&
		       !cli_judge_walk(judge, &memory, &thread, &libdw, why);

	if (is_done)
		judge_one(t);
	cli_memory_done(&memory);
	return is_done;
}

static void print(const struct totals *t)
{
	const char *comma = "";

	printf("{\"stacks\":%lu,\"same\":%lu,\"wrong\":%lu,\"short\":%lu,\"judged\":%lu,\"deeper\":"
	       "%"
	       "lu,"
	       "\"whole\":%lu,\"libdw_whole\":%lu,\"deep\":%lu,\"frames\":%lu,\"failed\":%lu,"
	       "\"cuts\":{",
	       t->stacks, t->verdicts[CLI_VERDICT_SAME], t->verdicts[CLI_VERDICT_WRONG],
	       t->verdicts[CLI_VERDICT_SHORT], t->judged, t->deeper, t->whole, t->libdw_whole,
	       t->deep, t->frames, t->failed);
	for (int i = 0; i < FLY_CUT_COUNT; i++) {
		if (!t->cuts[i])
			continue;
		printf("%s\"%s\":%lu", comma, cut_names[i], t->cuts[i]);
		comma = ",";
	}
	puts("}}");
}

int main(int argc, char **argv)
{
	uint64_t pid, count, seconds = 60, end;
	struct totals totals = {0};
	struct why why = {""};

	if (argc < 3 || text_parse_u64(argv[1], 1, INT32_MAX, &pid) ||
	    text_parse_u64(argv[2], 1, UINT32_MAX, &count) ||
	    (argc > 3 && text_parse_u64(argv[3], 1, 86400, &seconds))) {
		fputs("usage: replay_stacks PID COUNT [SECONDS]\n", stderr);
		return 2;
	}
	end = clock_monotonic_ns() + seconds * 1000000000ULL;
	for (uint64_t i = 0; i < count && clock_monotonic_ns() < end; i++) {
		struct timespec pause = {.tv_nsec = any(PAUSE_MAX_NS)};

		if (!walk_one((pid_t)pid, &totals, &why)) {
			totals.failed++;
			if (kill((pid_t)pid, 0))
				break;
		}
		nanosleep(&pause, NULL);
	}
	print(&totals);
	if (!totals.stacks)
		fprintf(stderr, "replay_stacks: %s\n", why.text[0] ? why.text : "it has ended");
	cli_judge_free(judge);
	cli_picture_close(&picture);
	return totals.stacks ? 0 : 3;
}
