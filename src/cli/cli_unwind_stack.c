// SPDX-License-Identifier: Apache-2.0
/* flyball unwind --stack: one walk of a live thread by our tables, beside libdw's. */
#include "cli_unwind_stack.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "cli.h"

struct report {
	pid_t tid;
	struct cli_picture picture;
	struct cli_memory memory;
	struct cli_judge *judge;
	struct unwind_thread thread;
	struct unwind_stack ours;
	struct cli_judgement libdw;
	enum cli_verdict verdict;
	uint32_t depth; /* of the first difference */
};

/* The group leader's number; a thread may be given by its own. */
static int process_of(pid_t tid, pid_t *ret, struct why *why)
{
	char path[64], line[256];
	FILE *f;
	int pid = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = fopen(path, "re");
	if (!f)
		return why_set(why, -ESRCH, "there is no process %d", tid);
	while (!pid && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Tgid: %d", &pid) != 1)
			pid = 0;
	}
	fclose(f);
	*ret = pid;
	return pid ? 0 : why_set(why, -ESRCH, "process %d has ended", tid);
}

static int take(struct report *r, struct why *why)
{
	pid_t pid = 0;
	int err = process_of(r->tid, &pid, why);

	if (!err)
		err = cli_picture_open(pid, &r->picture, why);
	/* Before the thread stands still: libdw takes its time. */
	if (!err)
		err = cli_judge_new(&r->picture, pid, &r->judge, why);
	if (!err && cli_memory_init(&r->memory, pid))
		err = why_set(why, -ENOMEM, "out of memory");
	if (!err)
		err = cli_thread_walk(r->tid, &r->picture, &r->memory, &r->thread, &r->ours, why);
	if (!err)
		err = cli_judge_walk(r->judge, &r->memory, &r->thread, &r->libdw, why);
	if (!err)
		r->verdict = cli_stack_compare(&r->ours, &r->libdw, &r->depth);
	return err;
}

static const char *end_text(const struct unwind_stack *stack)
{
	static const char *const names[] = {
#define CUT(ID, name, text, advice) #name,
#include "abi/reasons.def"
	};

	if (stack->is_whole)
		return "whole";
	return stack->cut < ARRAY_SIZE(names) ? names[stack->cut] : "unknown";
}

static const char *verdict_text(enum cli_verdict verdict)
{
	switch (verdict) {
	case CLI_VERDICT_SAME:
		return "same";
	case CLI_VERDICT_WRONG:
		return "different";
	default:
		return "libdw goes on";
	}
}

/* File and address in it, and the function where libdw knows one. */
static void place_print(const struct report *r, uint64_t address, bool is_leaf, char *out,
			size_t size)
{
	uint64_t at = address - !is_leaf;
	const struct cli_mapping *m = cli_picture_find(&r->picture, at);
	const struct cli_file *file = m ? &r->picture.files[m->file] : NULL;
	const char *name = cli_judge_name(r->judge, at);
	char clean[256] = "";

	if (name)
		text_print(name, strlen(name), clean, sizeof(clean));
	if (!file)
		snprintf(out, size, "no executable mapping");
	else
		snprintf(out, size, "%s+0x%" PRIx64 "%s%s", file->name[0] ? file->name : "[anon]",
			 address - file->bias, clean[0] ? " " : "", clean);
}

static void text_report(const struct report *r)
{
	uint32_t count =
		r->ours.count > r->libdw.stack.count ? r->ours.count : r->libdw.stack.count;

	printf("thread %d%s\n", r->tid, r->thread.is_in_syscall ? ", in a system call" : "");
	for (uint32_t i = 0; i < count; i++) {
		bool ours = i < r->ours.count, libdw = i < r->libdw.stack.count;
		uint64_t a = ours ? r->ours.frames[i] : 0, b = libdw ? r->libdw.stack.frames[i] : 0;
		char left[32] = "-", right[32] = "-", place[512];

		if (ours)
			snprintf(left, sizeof(left), "0x%" PRIx64, a);
		if (libdw)
			snprintf(right, sizeof(right), "0x%" PRIx64, b);
		place_print(r, ours ? a : b, !i, place, sizeof(place));
		/* Past what it found by call frame information, libdw's word does not count. */
		printf("%4u %c %-18s %-18s %s\n", i,
		       a == b ? ' ' : (i < r->libdw.judged ? '!' : '?'), left, right, place);
	}
	printf("tables: %u frames, %s; libdw: %u frames, %s; %s", r->ours.count, end_text(&r->ours),
	       r->libdw.stack.count, r->libdw.stack.is_whole ? "whole" : "lost",
	       verdict_text(r->verdict));
	if (r->verdict != CLI_VERDICT_SAME)
		printf(" from frame %u", r->depth);
	putchar('\n');
}

static json_t *hex(uint64_t address)
{
	char text[32];

	snprintf(text, sizeof(text), "0x%" PRIx64, address);
	return json_string(text);
}

static json_t *frames_json(const struct report *r, const struct unwind_stack *stack)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < stack->count; i++) {
		json_t *o = json_object();
		char place[512];

		place_print(r, stack->frames[i], !i, place, sizeof(place));
		json_object_set_new(o, "address", hex(stack->frames[i]));
		json_object_set_new(o, "place", json_string(place));
		json_array_append_new(list, o);
	}
	return list;
}

static void json_report(const struct report *r)
{
	json_t *o = json_object();

	json_object_set_new(o, "tid", json_integer(r->tid));
	json_object_set_new(o, "in_syscall", json_boolean(r->thread.is_in_syscall));
	json_object_set_new(o, "frames", frames_json(r, &r->ours));
	json_object_set_new(o, "end", json_string(end_text(&r->ours)));
	json_object_set_new(o, "libdw_frames", frames_json(r, &r->libdw.stack));
	json_object_set_new(o, "libdw_end",
			    json_string(r->libdw.stack.is_whole ? "whole" : "lost"));
	json_object_set_new(o, "libdw_judged", json_integer(r->libdw.judged));
	json_object_set_new(o, "verdict", json_string(verdict_text(r->verdict)));
	if (r->verdict != CLI_VERDICT_SAME)
		json_object_set_new(o, "from", json_integer(r->depth));
	json_dumpf(o, stdout, JSON_COMPACT);
	json_decref(o);
	putchar('\n');
}

int cli_unwind_stack(const char *text, bool is_json)
{
	struct why why = {""};
	struct report *r;
	uint64_t tid;
	int err, status;

	if (text_parse_u64(text, 1, INT32_MAX, &tid))
		return cli_usage_error("unwind", "--stack needs the number of a process or thread");
	r = mem_alloc(MEM_BASE, sizeof(*r));
	if (!r)
		return agent_exit_of(-ENOMEM);
	r->tid = (pid_t)tid;
	err = take(r, &why);
	status = err				  ? agent_exit_of(err)
		 : r->verdict == CLI_VERDICT_SAME ? AGENT_EXIT_DONE
						  : AGENT_EXIT_FINDINGS;
	if (err)
		log_error("%s", why.text);
	else if (is_json)
		json_report(r);
	else
		text_report(r);
	cli_judge_free(r->judge);
	cli_memory_done(&r->memory);
	cli_picture_close(&r->picture);
	mem_free(MEM_BASE, r);
	return status;
}
