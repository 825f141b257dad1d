/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What the test-only build of the BPF object says of each walk by tables: registers and stack as
 * they were, beside the sample. The includer provides __u8 .. __u64.
 */
#ifndef FLYBALL_ABI_CAPTURE_H
#define FLYBALL_ABI_CAPTURE_H

#define CAPTURE_PAGE	     4096u
#define CAPTURE_PAGES	     64u /* from the page of SP up */
#define CAPTURE_BASE_PAGES   16u /* from the base down, of the stack that the walk ended on */
#define CAPTURE_RECORD_BYTES 9936u
#define CAPTURE_RING_BYTES   (16u << 20)

struct capture {
	__u64 regs[16]; /* by DWARF number */
	__u64 pc, stack_start, thread_block;
	__u64 at, base_at; /* addresses of stack and base */
	__u32 pages, base_pages;
	__u32 is_exact; /* else in a system call */
	__u32 pad;
	__u8 record[CAPTURE_RECORD_BYTES]; /* struct fly_sample, the part of it that there is */
	__u8 stack[CAPTURE_PAGES][CAPTURE_PAGE];
	__u8 base[CAPTURE_BASE_PAGES][CAPTURE_PAGE];
};

#endif
