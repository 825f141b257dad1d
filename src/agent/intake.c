// SPDX-License-Identifier: Apache-2.0
/*
 * intake: the ordered stream of kernel events becomes processes, mappings and samples.
 *
 * A sample whose process is not known yet (it ran before us, or its side-band was lost) waits, at
 * most SETTLE_NS, for the scan that was asked for; one with a frame in no known mapping WAIT_NS.
 * The queue is bounded in bytes: past the bound the oldest is placed as it is. Every sample leaves
 * by exactly one door: delivered, or profile_full.
 */
#include "record_private.h"

#include <errno.h>
#include <string.h>

#include "agent/ksymbols.h"

#define WAIT_NS 400000000ULL /* for a frame in no known mapping */
#define SETTLE_NS                                                                                  \
	2500000000ULL /* for a process that is being scanned: past a helper's deadline             \
		       */
#define WAIT_BYTES_MAX	 (8U << 20)
#define FRAMES_MAX	 (FLY_MAX_KERNEL_FRAMES + FLY_MAX_FRAMES)
#define UNKNOWN_KEY	 3
#define KERNEL_KEY	 1
#define TRACKER_KEY_BASE 16

struct waiting {
	struct waiting *next;
	int64_t process;
	uint64_t until_ns;
	size_t bytes;
	struct fly_sample sample;
};

struct intake {
	struct intake_options opt;
	struct intake_counts counts;
	struct waiting *head, **tail;
	size_t waiting, waiting_bytes;
	/* tracker id -> profile id + 1 */
	uint32_t *processes, *files;
	size_t process_cap, file_cap;
	uint32_t kernel_file, unknown_file;
};

static int64_t add_special_file(struct intake *in, uint64_t key, const char *path, int32_t kind)
{
	struct profile_file file = {.key = key, .path = path};
	int64_t id;

	if (kind == NAMING_FILE_KERNEL)
		file.build_id_len = (uint8_t)kernel_build_id(file.build_id, sizeof(file.build_id));
	id = profile_file_add(in->opt.profile, &file);
	if (id >= 0 && in->opt.naming && naming_file_add(in->opt.naming, (uint32_t)id, kind))
		return -ENOMEM;
	return id;
}

int intake_new(const struct intake_options *options, struct intake **ret)
{
	struct intake *in = mem_alloc(MEM_AGENT, sizeof(*in));
	int64_t kernel, unknown;

	if (!in)
		return -ENOMEM;
	in->opt = *options;
	in->tail = &in->head;
	kernel = add_special_file(in, KERNEL_KEY, "[kernel.kallsyms]", NAMING_FILE_KERNEL);
	unknown = add_special_file(in, UNKNOWN_KEY, "", NAMING_FILE_UNKNOWN);
	if (kernel < 0 || unknown < 0) {
		intake_free(in);
		return -ENOMEM;
	}
	in->kernel_file = (uint32_t)kernel;
	in->unknown_file = (uint32_t)unknown;
	*ret = in;
	return 0;
}

void intake_free(struct intake *in)
{
	if (!in)
		return;
	while (in->head) {
		struct waiting *w = in->head;

		in->head = w->next;
		mem_free(MEM_AGENT, w);
	}
	mem_free(MEM_AGENT, in->processes);
	mem_free(MEM_AGENT, in->files);
	mem_free(MEM_AGENT, in);
}

/* Slot of a tracker id in one of the two maps, grown and zeroed as needed. NULL: out of memory. */
static uint32_t *id_slot(uint32_t **map, size_t *cap, size_t id)
{
	size_t old = *cap;
	void *p = *map;

	if (id >= *cap) {
		if (mem_grow(MEM_AGENT, &p, cap, id + 1, 1U << 24, sizeof(**map)))
			return NULL;
		*map = p;
		memset(*map + old, 0, (*cap - old) * sizeof(**map));
	}
	return *map + id;
}

static void fill_profile_file(const struct process_file *from, uint64_t key,
			      struct profile_file *to)
{
	memset(to, 0, sizeof(*to));
	to->key = key;
	to->path = from->path;
	to->build_id_len = from->info.build_id_len;
	memcpy(to->build_id, from->info.build_id, sizeof(to->build_id));
	if (from->state != PROCESS_FILE_READY)
		return;
	to->has_htlhash = 1;
	memcpy(to->htlhash, from->info.htlhash, sizeof(to->htlhash));
	to->segment_count = from->info.segment_count;
	for (uint32_t i = 0; i < to->segment_count; i++) {
		to->segments[i].offset = from->info.segments[i].offset;
		to->segments[i].vaddr = from->info.segments[i].vaddr;
		to->segments[i].file_bytes = from->info.segments[i].file_bytes;
	}
}

/* The profile's entry for a file of the tracker. */
static int64_t profile_file_of(struct intake *in, int32_t tracker_file)
{
	uint32_t *slot = id_slot(&in->files, &in->file_cap, (size_t)tracker_file);
	struct profile_file file;
	int32_t same;
	int64_t id;

	if (!slot)
		return -ENOMEM;
	if (*slot)
		return *slot - 1;
	/* One file that came by two ways (side-band and scan) is one file here. */
	same = process_file_get(in->opt.tracker, tracker_file)->same_as;
	if (same != tracker_file)
		return profile_file_of(in, same);
	fill_profile_file(process_file_get(in->opt.tracker, tracker_file),
			  TRACKER_KEY_BASE + (uint64_t)tracker_file, &file);
	id = profile_file_add(in->opt.profile, &file);
	if (id < 0)
		return id;
	if (in->opt.naming && naming_file_add(in->opt.naming, (uint32_t)id, tracker_file))
		return -ENOMEM;
	process_file_want(in->opt.tracker, tracker_file);
	*slot = (uint32_t)id + 1;
	return id;
}

static void fill_profile_process(const struct intake *in, const struct process_info *from,
				 int64_t id, struct profile_process *to)
{
	to->service = spans_service(in->opt.spans, from->tgid, from->start_ns);
	to->pid = from->tgid;
	to->start_ns = from->start_ns;
	to->program = (uint64_t)id;
	to->comm = from->comm;
	to->exe = from->exe;
	to->container = from->container;
	to->cgroup = from->cgroup;
}

static int64_t profile_process_of(struct intake *in, int64_t process)
{
	uint32_t *slot = id_slot(&in->processes, &in->process_cap, (size_t)process);
	struct process_info info;
	struct profile_process to;
	int64_t id;

	if (!slot)
		return -ENOMEM;
	if (*slot)
		return *slot - 1;
	process_get(in->opt.tracker, process, &info);
	fill_profile_process(in, &info, process, &to);
	id = profile_process_add(in->opt.profile, &to);
	if (id >= 0)
		*slot = (uint32_t)id + 1;
	return id;
}

void intake_refresh(struct intake *in)
{
	for (size_t i = 0; i < in->process_cap; i++) {
		struct profile_process to;
		struct process_info info;

		if (!in->processes[i])
			continue;
		process_get(in->opt.tracker, (int64_t)i, &info);
		fill_profile_process(in, &info, (int64_t)i, &to);
		profile_process_update(in->opt.profile, in->processes[i] - 1, &to);
	}
	for (size_t i = 0; i < in->file_cap; i++) {
		struct profile_file file;

		if (!in->files[i])
			continue;
		fill_profile_file(process_file_get(in->opt.tracker, (int32_t)i),
				  TRACKER_KEY_BASE + i, &file);
		profile_file_update(in->opt.profile, in->files[i] - 1, &file);
	}
}

static int64_t kernel_location(struct intake *in, const struct fly_sample *s, uint32_t i)
{
	uint64_t pc = s->frames[i] - (i ? 1 : 0);

	return profile_location_add_variant(in->opt.profile, in->kernel_file, pc, PROFILE_KERNEL,
					    ksymbols_version(in->opt.ksymbols, pc, s->time_ns));
}

static int64_t user_location(struct intake *in, int64_t process, const struct process_place *place,
			     uint64_t pc)
{
	int64_t file;

	if (place->file >= 0) {
		file = profile_file_of(in, place->file);
		return file < 0 ? file
				: profile_location_add(in->opt.profile, (uint32_t)file,
						       place->file_offset, PROFILE_USER);
	}
	if (place->unnamed == FLY_UNNAMED_ANONYMOUS)
		return jit_location(in->opt.jit, process, pc);
	return profile_location_add(in->opt.profile, in->unknown_file, pc, PROFILE_USER);
}

/* Nobody called what a signal interrupted, nor the signal's return code before it. */
static bool is_exact(const struct fly_sample *s, uint32_t i)
{
	const __u64 *frame = &s->frames[s->kernel_frames + i];

	return frame[0] & FLY_FRAME_EXACT || (i + 1 < s->user_frames && frame[1] & FLY_FRAME_EXACT);
}

/* A return address points behind its call; so does the PC of a thread inside a system call. */
static uint64_t user_pc(const struct fly_sample *s, uint32_t i)
{
	uint64_t pc = s->frames[s->kernel_frames + i] & ~FLY_FRAME_EXACT;
	bool is_return = i > 0 ? !is_exact(s, i) : (s->state & FLY_STATE_IN_SYSCALL) != 0;

	return pc - (is_return && pc ? 1 : 0);
}

static bool is_c_library(struct intake *in, int32_t tracker_file)
{
	const char *path, *name;

	if (tracker_file < 0)
		return false;
	path = process_file_get(in->opt.tracker, tracker_file)->path;
	name = strrchr(path, '/');
	name = name ? name + 1 : path;
	return !strncmp(name, "libc.so", 7) || !strncmp(name, "libc-2.", 7) ||
	       !strncmp(name, "ld-musl", 7);
}

/* Why a walk went astray that came upon a frame which lies nowhere. */
static enum fly_cut lost_reason(const struct intake *in, const struct fly_sample *s)
{
	if (s->state & FLY_STATE_TABLES)
		return FLY_CUT_MAPPING_ABSENT;
	if (in->opt.unwinding && !(s->state & FLY_STATE_PRESSURE))
		return FLY_CUT_PROCESS_NOT_TRACKED;
	return FLY_CUT_FRAME_POINTER_LOST;
}

/*
 * Locations of the user frames. A caller in no executable mapping is not a caller: the chain of
 * frame pointers was lost before it, so the stack is cut there and says so. Returns how many were
 * written, or negative errno; *ret_unplaced counts frames in no known mapping.
 */
static int place_user(struct intake *in, const struct fly_sample *s, int64_t process,
		      uint32_t *locations, struct profile_sample *sample, bool *ret_unplaced)
{
	bool was_lost = false;
	int32_t outermost = -1;
	int n = 0;

	*ret_unplaced = false;
	for (uint32_t i = 0; i < s->user_frames; i++) {
		uint64_t pc = user_pc(s, i);
		struct process_place place;
		int64_t location;

		process_place(in->opt.tracker, process, pc, &place);
		if (place.file >= 0)
			unwinding_frame(in->opt.unwinding, place.file, place.file_offset);
		if (place.file < 0 && place.unnamed == FLY_UNNAMED_MAPPING_UNKNOWN) {
			*ret_unplaced = true;
			if (i) {
				sample->cut &= ~(1u << FLY_CUT_DEPTH_LIMIT);
				sample->cut |= 1u << lost_reason(in, s);
				was_lost = true;
				break;
			}
		}
		location = user_location(in, process, &place, pc);
		if (location < 0)
			return (int)location;
		locations[n++] = (uint32_t)location;
		outermost = place.file;
	}
	/* abi/records.h: only start code of the C library is missing, nothing of the program's own.
	 * In a static program that is known by the name of the outermost frame, later. A frame
	 * alone may be any function that a short stack has called. */
	sample->is_near_base = (s->state & FLY_STATE_NEAR_BASE) && !was_lost;
	if (n > 1 && sample->is_near_base && is_c_library(in, outermost))
		sample->cut &= ~FLY_CUTS_OF_NEAR_BASE | 1u << FLY_CUT_NO_UNWIND_ROWS;
	return n;
}

struct span {
	struct profile_span ids;
	struct spans_attributes attributes;
};

static void take_span(const struct intake *in, const struct fly_sample *s, struct span *span,
		      struct profile_sample *to)
{
	if (s->state & FLY_STATE_SPAN) {
		memcpy(span->ids.trace_id, s->trace_id, sizeof(span->ids.trace_id));
		memcpy(span->ids.span_id, s->span_id, sizeof(span->ids.span_id));
		to->span = &span->ids;
		to->span_fault = spans_attributes(in->opt.spans, s, &span->attributes);
		to->attributes = span->attributes.list;
		to->attribute_count = span->attributes.count;
	} else if (s->state & FLY_STATE_SPAN_ABSENT) {
		to->span_fault = PROFILE_SPAN_PAGE_ABSENT;
	} else if (s->state & FLY_STATE_SPAN_INVALID) {
		to->span_fault = PROFILE_SPAN_INVALID;
	}
}

/* -EAGAIN: better later (only when may_wait). */
static int sample_add(struct intake *in, const struct fly_sample *s, int64_t process, bool may_wait)
{
	uint32_t locations[FRAMES_MAX];
	struct profile_sample sample = {.cut = s->cut};
	struct span span;
	int64_t id;
	bool unplaced;
	int n;

	n = place_user(in, s, process, locations + s->kernel_frames, &sample, &unplaced);
	if (n < 0)
		return n;
	if (unplaced && may_wait)
		return -EAGAIN;
	for (uint32_t i = 0; i < s->kernel_frames; i++) {
		id = kernel_location(in, s, i);
		if (id < 0)
			return (int)id;
		locations[i] = (uint32_t)id;
	}
	id = profile_process_of(in, process);
	if (id < 0)
		return (int)id;
	sample.process = (uint32_t)id;
	sample.tid = s->tid;
	sample.comm = s->comm;
	sample.time_ns = wallclock_at(in->opt.clock, s->time_ns);
	sample.weight_ns = s->weight_ns;
	sample.cpu = s->cpu;
	sample.depth_limit = in->opt.depth;
	take_span(in, s, &span, &sample);
	sample.location_count = s->kernel_frames + (size_t)n;
	sample.locations = locations;
	return profile_sample_add(in->opt.profile, &sample);
}

static void sample_count(struct intake *in, const struct fly_sample *s, int err)
{
	if (err) {
		in->counts.profile_full++;
		in->counts.profile_full_ns += s->weight_ns;
	} else {
		in->counts.delivered++;
		in->counts.delivered_ns += s->weight_ns;
	}
}

static bool sample_wait(struct intake *in, const struct fly_sample *s, int64_t process,
			uint64_t wait_ns)
{
	size_t bytes = sizeof(*s) + sizeof(s->frames[0]) * (size_t)fly_sample_words(s);
	struct waiting *w;

	if (in->waiting_bytes + bytes > WAIT_BYTES_MAX)
		return false;
	w = mem_alloc(MEM_AGENT, offsetof(struct waiting, sample) + bytes);
	if (!w)
		return false;
	w->process = process;
	w->until_ns = s->time_ns + wait_ns;
	w->bytes = bytes;
	memcpy(&w->sample, s, bytes);
	*in->tail = w;
	in->tail = &w->next;
	in->waiting++;
	in->waiting_bytes += bytes;
	return true;
}

static void sample_event(struct intake *in, const struct fly_sample *s)
{
	int64_t process = process_of_sample(in->opt.tracker, s->time_ns, s->tgid,
					    s->process_start_ns, s->cgroup_id, s->comm);
	bool is_settled;
	int err = -EAGAIN;

	if (process < 0) {
		sample_count(in, s, -ENOMEM);
		return;
	}
	unwinding_sample(in->opt.unwinding, s);
	spans_sample(in->opt.spans, s);
	is_settled = process_is_settled(in->opt.tracker, process);
	if (is_settled)
		err = sample_add(in, s, process, true);
	if (err == -EAGAIN && sample_wait(in, s, process, is_settled ? WAIT_NS : SETTLE_NS))
		return;
	if (err == -EAGAIN)
		err = sample_add(in, s, process, false);
	sample_count(in, s, err);
}

void intake_flush(struct intake *in, uint64_t now_ns, bool is_final)
{
	struct waiting *w = in->head, **keep = &in->head;

	while (w) {
		struct waiting *next = w->next;
		bool is_due = is_final || now_ns >= w->until_ns;
		int err = -EAGAIN;

		if (is_due || process_is_settled(in->opt.tracker, w->process))
			err = sample_add(in, &w->sample, w->process, !is_due);
		if (err == -EAGAIN && !is_due) {
			*keep = w;
			keep = &w->next;
		} else {
			sample_count(in, &w->sample, err);
			in->waiting--;
			in->waiting_bytes -= w->bytes;
			mem_free(MEM_AGENT, w);
		}
		w = next;
	}
	*keep = NULL;
	in->tail = keep;
}

size_t intake_waiting(const struct intake *in)
{
	return in->waiting;
}

void intake_counts_get(const struct intake *in, struct intake_counts *ret)
{
	*ret = in->counts;
}

static void exec_event(struct intake *in, const struct kernel_event *e)
{
	const struct fly_exec *x = e->exec;
	char comm[FLY_COMM_BYTES + 1] = {0};
	struct process_exec exec = {
		.process_start_ns = x->process_start_ns,
		.cgroup_id = x->cgroup_id,
		.exe_dev = x->exe_dev,
		.exe_ino = x->exe_ino,
		.root_dev = x->root_dev,
		.root_ino = x->root_ino,
		.mount_namespace = x->mount_namespace,
		.comm = comm,
	};

	memcpy(comm, x->comm, FLY_COMM_BYTES);
	process_exec(in->opt.tracker, e->time_ns, x->tgid, &exec);
}

static void mmap_event(struct intake *in, const struct kernel_event *e)
{
	struct process_mmap map = {
		.start = e->mmap.start,
		.bytes = e->mmap.bytes,
		.pgoff = e->mmap.pgoff,
		.build_id_len = e->mmap.build_id_len,
		.dev_major = e->mmap.dev_major,
		.dev_minor = e->mmap.dev_minor,
		.ino = e->mmap.ino,
		.ino_generation = e->mmap.ino_generation,
		.path = e->mmap.path,
	};

	memcpy(map.build_id, e->mmap.build_id, sizeof(map.build_id));
	process_map(in->opt.tracker, e->time_ns, e->tgid, &map);
}

void intake_event(void *intake, const struct kernel_event *e)
{
	struct intake *in = intake;
	struct process_tracker *t = in->opt.tracker;

	switch (e->type) {
	case KERNEL_EVENT_SAMPLE:
		sample_event(in, e->sample);
		break;
	case KERNEL_EVENT_EXEC:
		exec_event(in, e);
		break;
	case KERNEL_EVENT_FORK:
		process_fork(t, e->time_ns, e->fork.parent_tgid, e->tgid, e->tid);
		break;
	case KERNEL_EVENT_EXIT:
		process_exit(t, e->time_ns, e->tgid, e->tid);
		break;
	case KERNEL_EVENT_COMM:
		process_comm(t, e->time_ns, e->tgid, e->tid, e->comm.comm, e->comm.is_exec);
		break;
	case KERNEL_EVENT_MMAP:
		mmap_event(in, e);
		break;
	case KERNEL_EVENT_KSYMBOL:
		(e->ksymbol.is_gone ? ksymbols_go : ksymbols_come)(
			in->opt.ksymbols, e->time_ns, e->ksymbol.address, e->ksymbol.bytes,
			e->ksymbol.name);
		break;
	case KERNEL_EVENT_LOST:
		process_lost(t, e->time_ns);
		break;
	}
}
