// SPDX-License-Identifier: Apache-2.0
/* frames: the words for a frame. One place, so that no two outputs disagree. */
#include "frames.h"

#include <inttypes.h>
#include <string.h>

#define KERNEL_PATH  "[kernel.kallsyms]"
#define KERNEL_START 0xff00000000000000ULL /* below every kernel, 5-level paging included */
#define PAGE_MASK    0xfffULL

int profile_location_vaddr(const struct profile *p, uint32_t location, uint64_t *ret_vaddr)
{
	const struct profile_location_key *key = profile_location_key(p, location);
	const struct profile_file_row *file = &p->file_rows[key->file];

	for (uint32_t i = 0; i < file->segment_count; i++) {
		const struct profile_segment *s = &file->segments[i];

		if (key->address >= s->offset && key->address - s->offset < s->file_bytes) {
			*ret_vaddr = key->address - s->offset + s->vaddr;
			return (int)i;
		}
	}
	*ret_vaddr = key->address;
	return -1;
}

uint64_t *profile_file_limits(const struct profile *p)
{
	uint64_t *limits = mem_array(MEM_PROFILE, p->files.count, sizeof(*limits));

	for (uint32_t i = 0; limits && i < p->locations.count; i++) {
		const struct profile_location_key *key = profile_location_key(p, i);

		if (key->address < UINT64_MAX - PAGE_MASK && key->address >= limits[key->file])
			limits[key->file] = (key->address | PAGE_MASK) + 1;
	}
	return limits;
}

void profile_location_place(const struct profile *p, uint32_t location, const uint64_t *file_limits,
			    struct profile_place *ret)
{
	const struct profile_location_key *key = profile_location_key(p, location);
	const struct profile_file_row *file = &p->file_rows[key->file];
	int segment;

	memset(ret, 0, sizeof(*ret));
	segment = profile_location_vaddr(p, location, &ret->address);
	if (segment >= 0) {
		ret->start = file->segments[segment].vaddr;
		ret->limit = ret->start + file->segments[segment].file_bytes;
		ret->offset = file->segments[segment].offset;
	} else if (key->kind == PROFILE_KERNEL) {
		ret->start = KERNEL_START;
		ret->limit = UINT64_MAX;
	} else if (profile_file_is_named(p, key->file)) {
		ret->limit = file_limits[key->file];
	}
	ret->has_mapping = ret->start <= ret->address && ret->address < ret->limit;
}

const char *profile_basename(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

bool profile_file_is_named(const struct profile *p, uint32_t file)
{
	const char *path = profile_text(p, p->file_rows[file].path);

	return path[0] && strncmp(path, "//anon", 6) != 0;
}

const char *profile_location_module(const struct profile *p, uint32_t location)
{
	const struct profile_location_key *key = profile_location_key(p, location);
	const char *path = profile_text(p, p->file_rows[key->file].path);

	if (key->kind == PROFILE_KERNEL && (!path[0] || !strcmp(path, KERNEL_PATH)))
		return "[kernel]";
	if (!path[0])
		return "[unknown]";
	return profile_file_is_named(p, key->file) ? profile_basename(path) : "[anon]";
}

const char *profile_location_text(const struct profile *p, uint32_t location,
				  char out[PROFILE_FRAME_TEXT])
{
	const char *name = profile_text(p, p->location_rows[location].name);
	uint64_t vaddr;

	if (name[0])
		return name;
	profile_location_vaddr(p, location, &vaddr);
	snprintf(out, PROFILE_FRAME_TEXT, "%s+0x%" PRIx64, profile_location_module(p, location),
		 vaddr);
	return out;
}

size_t profile_location_frames(const struct profile *p, uint32_t location)
{
	size_t count;

	profile_lines(p, location, &count);
	return count ? count : 1;
}

void profile_location_frame(const struct profile *p, uint32_t location, size_t index,
			    struct profile_frame *ret)
{
	size_t count;
	const struct profile_line_row *lines = profile_lines(p, location, &count);

	ret->is_inlined = index + 1 < count;
	ret->name = profile_text(p, ret->is_inlined ? lines[index].function
						    : p->location_rows[location].name);
	ret->file = count ? profile_text(p, lines[index].file) : "";
	ret->line = count ? lines[index].line : 0;
}

size_t profile_location_chain(const struct profile *p, uint32_t location,
			      struct profile_frame frames[PROFILE_LINES_MAX],
			      char text[PROFILE_FRAME_TEXT])
{
	size_t count = profile_location_frames(p, location);

	for (size_t i = 0; i < count; i++)
		profile_location_frame(p, location, i, &frames[i]);
	if (count > 1)
		frames[count - 1].name = profile_location_text(p, location, text);
	return count;
}

/* One table of what pseudo frames say: a cut with a word here is a depth that was reached, any
 * other is "[incomplete: NAME]" with the name from reasons.def. */
static const char *const depth_words[FLY_CUT_COUNT] = {
	[FLY_CUT_DEPTH_LIMIT] = "depth",
	[FLY_CUT_KERNEL_DEPTH_LIMIT] = "kernel depth",
	[FLY_CUT_RING_PRESSURE] = "depth",
};

static void pseudo_text(int cut, uint32_t bits, uint32_t depth, char out[PROFILE_PSEUDO_TEXT])
{
	const char *pressure = bits & 1U << FLY_CUT_RING_PRESSURE ? ", ring pressure" : "";

	if (!depth_words[cut])
		snprintf(out, PROFILE_PSEUDO_TEXT, "[incomplete: %s]",
			 profile_cut_name((enum fly_cut)cut));
	else if (depth)
		snprintf(out, PROFILE_PSEUDO_TEXT, "[truncated: %s %" PRIu32 "%s]",
			 depth_words[cut], depth, pressure);
	else
		snprintf(out, PROFILE_PSEUDO_TEXT, "[truncated: %s limit%s]", depth_words[cut],
			 pressure);
}

/* What calls main and threads' functions in glibc and musl, when it is a part of the program's own
 * file: a shared C library is known without names. */
static bool is_start_code(const char *name)
{
	static const char *const names[] = {
		"__libc_start_call_main",
		"__libc_start_main",
		"__libc_start_main_impl",
		"generic_start_main",
		"_start_c",
		"libc_start_main_stage2",
		"_start",
		"start_thread",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

uint32_t profile_cut_bits(const struct profile *p, const struct profile_sample_key *key)
{
	uint32_t cut = key->cut & ~PROFILE_NEAR_BASE;
	const uint32_t *stack;
	size_t frames;

	if (!(key->cut & PROFILE_NEAR_BASE))
		return cut;
	stack = profile_stack(p, key->stack, &frames);
	if (frames && is_start_code(profile_text(p, p->location_rows[stack[frames - 1]].name)))
		cut &= ~FLY_CUTS_OF_NEAR_BASE;
	return cut;
}

size_t profile_pseudo_frames(const struct profile *p, const struct profile_sample_key *key,
			     struct profile_pseudo *out)
{
	const uint32_t depths = 1U << FLY_CUT_DEPTH_LIMIT | 1U << FLY_CUT_KERNEL_DEPTH_LIMIT;
	const uint32_t bits = profile_cut_bits(p, key);
	size_t n = 0, frames;

	for (int cut = 0; cut < FLY_CUT_COUNT; cut++) {
		if (!(bits & 1U << cut))
			continue;
		/* pressure is said beside the depth it caused, and alone only without one */
		if (cut == FLY_CUT_RING_PRESSURE && bits & depths)
			continue;
		pseudo_text(cut, bits, key->depth_limit, out->text[n++]);
	}
	profile_stack(p, key->stack, &frames);
	if (!n && !frames)
		snprintf(out->text[n++], PROFILE_PSEUDO_TEXT, "[no stack]");
	return n;
}

void profile_cut_text(const struct profile *p, const struct profile_sample_key *key,
		      char out[PROFILE_CUT_TEXT])
{
	uint32_t cut = profile_cut_bits(p, key);
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; i < FLY_CUT_COUNT && n < PROFILE_CUT_TEXT; i++) {
		if (cut & 1U << i)
			n += (size_t)snprintf(out + n, PROFILE_CUT_TEXT - n, "%s%s", n ? "," : "",
					      profile_cut_name((enum fly_cut)i));
	}
}
