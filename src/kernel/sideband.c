// SPDX-License-Identifier: Apache-2.0
/*
 * sideband: what the kernel says about processes: mappings with build-ids, names, forks, exits,
 * kernel symbols. One PERF_COUNT_SW_DUMMY event per CPU with a ring of its own.
 *
 * Paths and names in the records are the user's: they are taken as bytes that end in a NUL inside
 * the record, or the record is refused.
 */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The trailer of each record, as PERF_SAMPLE_TID | TIME | CPU asks for it. */
struct trailer {
	uint32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, reserved;
};

struct mmap2 {
	uint32_t pid, tid;
	uint64_t address, bytes, pgoff;
	union {
		struct {
			uint32_t major, minor;
			uint64_t ino, ino_generation;
		} file;
		struct {
			uint8_t len, reserved[3];
			uint8_t id[20];
		} build;
	};
	uint32_t prot, flags;
};

struct task {
	uint32_t pid, ppid, tid, ptid;
	uint64_t time_ns;
};

struct ksymbol {
	uint64_t address;
	uint32_t bytes;
	uint16_t type, flags;
};

/* The body between header and trailer. */
struct body {
	const uint8_t *at;
	size_t bytes;
};

static bool take(struct body *body, void *out, size_t bytes)
{
	if (body->bytes < bytes)
		return false;
	memcpy(out, body->at, bytes);
	body->at += bytes;
	body->bytes -= bytes;
	return true;
}

static const char *take_text(struct body *body)
{
	return memchr(body->at, '\0', body->bytes) ? (const char *)body->at : NULL;
}

static int decode_mmap(struct body *body, uint16_t misc, struct kernel_event *ret,
		       const char **text)
{
	struct mmap2 map;

	if (!take(body, &map, sizeof(map)))
		return -EBADMSG;
	*text = take_text(body);
	if (!*text)
		return -EBADMSG;
	ret->type = KERNEL_EVENT_MMAP;
	ret->tgid = map.pid;
	ret->tid = map.tid;
	ret->mmap.start = map.address;
	ret->mmap.bytes = map.bytes;
	ret->mmap.pgoff = map.pgoff;
	if (misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		if (map.build.len > sizeof(map.build.id))
			return -EBADMSG;
		ret->mmap.build_id_len = map.build.len;
		memcpy(ret->mmap.build_id, map.build.id, map.build.len);
	} else {
		ret->mmap.dev_major = map.file.major;
		ret->mmap.dev_minor = map.file.minor;
		ret->mmap.ino = map.file.ino;
		ret->mmap.ino_generation = map.file.ino_generation;
	}
	return 1;
}

static int decode_comm(struct body *body, uint16_t misc, struct kernel_event *ret,
		       const char **text)
{
	uint32_t ids[2];

	if (!take(body, ids, sizeof(ids)))
		return -EBADMSG;
	*text = take_text(body);
	if (!*text)
		return -EBADMSG;
	ret->type = KERNEL_EVENT_COMM;
	ret->tgid = ids[0];
	ret->tid = ids[1];
	ret->comm.is_exec = misc & PERF_RECORD_MISC_COMM_EXEC;
	return 1;
}

static int decode_task(struct body *body, bool is_exit, struct kernel_event *ret)
{
	struct task task;

	if (!take(body, &task, sizeof(task)))
		return -EBADMSG;
	ret->type = is_exit ? KERNEL_EVENT_EXIT : KERNEL_EVENT_FORK;
	ret->tgid = task.pid;
	ret->tid = task.tid;
	ret->fork.parent_tgid = task.ppid;
	return 1;
}

static int decode_ksymbol(struct body *body, struct kernel_event *ret, const char **text)
{
	struct ksymbol symbol;

	if (!take(body, &symbol, sizeof(symbol)))
		return -EBADMSG;
	*text = take_text(body);
	if (!*text)
		return -EBADMSG;
	ret->type = KERNEL_EVENT_KSYMBOL;
	ret->ksymbol.address = symbol.address;
	ret->ksymbol.bytes = symbol.bytes;
	ret->ksymbol.is_gone = symbol.flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER;
	return 1;
}

/* Where the trailer of a record begins: at its end. Not so of kernel symbols, where each further
 * listener on the machine makes the kernel's record longer, by bytes that nobody wrote
 * (perf_event_ksymbol_output does not put the size back): there it follows the name. */
static size_t trailer_at(const uint8_t *record, size_t bytes, uint32_t type)
{
	size_t last = bytes - sizeof(struct trailer);
	size_t name = sizeof(struct perf_event_header) + sizeof(struct ksymbol);
	size_t after;

	if (type != PERF_RECORD_KSYMBOL || name >= last)
		return last;
	after = name + strnlen((const char *)record + name, last - name) + 1;
	after = (after + 7) & ~(size_t)7;
	return after < last ? after : last;
}

/* id, lost; or lost alone. */
static int decode_lost(struct body *body, bool has_id, struct kernel_event *ret)
{
	uint64_t values[2] = {0};

	if (!take(body, values, has_id ? 16 : 8))
		return -EBADMSG;
	ret->type = KERNEL_EVENT_LOST;
	ret->lost = values[has_id];
	return 1;
}

int kernel_sideband_decode(const uint8_t *record, size_t bytes, struct kernel_event *ret,
			   const char **ret_text)
{
	struct perf_event_header header;
	struct trailer trailer;
	struct kernel_event event = {0};
	const char *text = NULL;
	struct body body;
	size_t end;
	int err;

	if (bytes < sizeof(header) + sizeof(trailer))
		return -EBADMSG;
	memcpy(&header, record, sizeof(header));
	if (header.size != bytes)
		return -EBADMSG;
	end = trailer_at(record, bytes, header.type);
	memcpy(&trailer, record + end, sizeof(trailer));
	body.at = record + sizeof(header);
	body.bytes = end - sizeof(header);
	event.time_ns = trailer.time_ns;
	event.tgid = trailer.pid;
	event.tid = trailer.tid;
	switch (header.type) {
	case PERF_RECORD_MMAP2:
		err = decode_mmap(&body, header.misc, &event, &text);
		break;
	case PERF_RECORD_COMM:
		err = decode_comm(&body, header.misc, &event, &text);
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		err = decode_task(&body, header.type == PERF_RECORD_EXIT, &event);
		break;
	case PERF_RECORD_KSYMBOL:
		err = decode_ksymbol(&body, &event, &text);
		break;
	case PERF_RECORD_LOST:
	case PERF_RECORD_LOST_SAMPLES:
		err = decode_lost(&body, header.type == PERF_RECORD_LOST, &event);
		break;
	default:
		return 0;
	}
	if (err < 0)
		return err;
	*ret = event;
	*ret_text = text;
	return err;
}

/* ---------------------------------------------------------------- the rings */
/* Without CAP_IPC_LOCK all perf rings of a user share kernel.perf_event_mlock_kb per CPU: then a
 * smaller ring is better than none. */
static void map_ring(struct kernel_sideband_cpu *side, uint64_t data_bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	do {
		side->data_bytes = data_bytes;
		side->map_bytes = data_bytes + page;
		side->map = mmap(NULL, side->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				 side->fd, 0);
		data_bytes /= 2;
	} while (side->map == MAP_FAILED && errno == EPERM && data_bytes >= 2 * page);
}

int kernel_sideband_open(struct kernel_sideband_cpu *side, uint32_t cpu, uint64_t data_bytes,
			 struct why *why)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU,
		.disabled = 1,
		.mmap = 1,
		.mmap2 = 1,
		.build_id = 1, /* 5.12 */
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.ksymbol = 1,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.watermark = 1,
		.wakeup_watermark = (uint32_t)(data_bytes / 2),
	};
	int err;

	side->fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1,
				(unsigned long)PERF_FLAG_FD_CLOEXEC);
	if (side->fd < 0) {
		err = -errno;
		side->fd = -1;
		return why_set(why, err, "the side-band event of CPU %u cannot be opened: %s", cpu,
			       strerror(-err));
	}
	map_ring(side, data_bytes);
	if (side->map == MAP_FAILED) {
		err = -errno;
		side->map = NULL;
		kernel_sideband_close(side);
		return why_set(why, err,
			       "the side-band ring of CPU %u (%zu bytes) cannot be mapped: %s", cpu,
			       side->map_bytes, strerror(-err));
	}
	return 0;
}

void kernel_sideband_close(struct kernel_sideband_cpu *side)
{
	if (side->map)
		munmap(side->map, side->map_bytes);
	if (side->fd >= 0)
		close(side->fd);
	side->map = NULL;
	side->fd = -1;
}

/* Copies bytes at a position of the ring, around its end. */
static void copy_out(const struct kernel_sideband_cpu *side, uint64_t at, uint8_t *out,
		     size_t bytes)
{
	const uint8_t *data = (const uint8_t *)side->map + side->map_bytes - side->data_bytes;
	size_t offset = (size_t)(at & (side->data_bytes - 1));
	size_t first = side->data_bytes - offset < bytes ? side->data_bytes - offset : bytes;

	memcpy(out, data + offset, first);
	memcpy(out + first, data, bytes - first);
}

static void give_lost(uint64_t count, kernel_sideband_fn fn, void *ctx)
{
	struct kernel_event event = {
		.type = KERNEL_EVENT_LOST, .time_ns = clock_monotonic_ns(), .lost = count};

	fn(ctx, &event, NULL);
}

size_t kernel_sideband_drain(struct kernel_sideband_cpu *side, uint8_t *scratch,
			     kernel_sideband_fn fn, void *ctx)
{
	struct perf_event_mmap_page *page = side->map;
	uint64_t head, tail;
	size_t count = 0;

	if (!page)
		return 0;
	head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	tail = page->data_tail;
	while (tail < head) {
		struct perf_event_header header;
		struct kernel_event event;
		const char *text;
		int err;

		copy_out(side, tail, (uint8_t *)&header, sizeof(header));
		if (header.size < sizeof(header) || header.size > head - tail) {
			/* Where the next record begins cannot be known. */
			side->bad++;
			give_lost(1, fn, ctx);
			tail = head;
			break;
		}
		copy_out(side, tail, scratch, header.size);
		err = kernel_sideband_decode(scratch, header.size, &event, &text);
		if (err > 0)
			fn(ctx, &event, text);
		else if (err < 0)
			side->bad++;
		count++;
		tail += header.size;
	}
	__atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
	return count;
}
