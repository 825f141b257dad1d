/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Kernel memory of the table walker: where tables (abi/rows.h) and the mappings of processes lie,
 * written by user space, read by BPF.
 *
 * fly_segments: ARRAY_OF_MAPS, each inner map a BPF_F_MMAPABLE ARRAY of FLY_SEGMENT_BLOCKS blocks
 * of 64 KiB: one space of words. Word N lies in block N / FLY_BLOCK_WORDS, block B in segment B /
 * FLY_SEGMENT_BLOCKS. Segments come and go with need.
 *
 * fly_tables: mmapable ARRAY of struct fly_table. Number 0 is no table. A table is published by
 * storing `pages` last, and taken away by storing 0 there first. `serial` is stored when the number
 * is given to a file, and 0 when it is taken back.
 *
 * fly_processes: HASH, tgid to struct fly_process: where its mappings lie in the space of words.
 * BPF takes an entry away when its process executes another program.
 *
 * What a walk that is under way may still read (a table's parts, a process's mappings) is not
 * written again before every walk that began earlier has ended (kernel_tables_wait).
 */
#ifndef FLYBALL_ABI_TABLE_SPACE_H
#define FLYBALL_ABI_TABLE_SPACE_H

#include "rows.h"

#define FLY_BLOCK_BYTES	   (4u * FLY_BLOCK_WORDS)
#define FLY_SEGMENT_BLOCKS 32u
#define FLY_SEGMENT_BYTES  (FLY_SEGMENT_BLOCKS * FLY_BLOCK_BYTES) /* 2 MiB */
#define FLY_SEGMENTS_MAX   32u
#define FLY_TABLES_MAX	   2048u

/* One executable mapping, 24 bytes, in an array sorted by start that does not cross a block's
 * border and starts at an even word. Pages are of 4 KiB.
 *
 *	place   start page (36 bits, low), table (16 bits), 12 bits 0
 *	target  bias page (36 bits, low, two's complement: address - bias is the link-time one),
 *	        length in pages (28 bits)
 *	identity  what the kernel must have there, FLY_IDENTITY_x or fly_identity_make: mappings
 *	        come and go without a word, and a walk by what was there before is wrong
 */
struct fly_mapping {
	__u64 place, target, identity;
};
#define FLY_MAPPING_WORDS 6u
#define FLY_MAPPINGS_MAX  (FLY_BLOCK_WORDS / FLY_MAPPING_WORDS) /* of one process: a block */

/* fly_mapping's table: a number below FLY_TABLES_MAX or one of these. */
#define FLY_TABLE_NONE		 0u	 /* its table is not in memory (yet, or refused) */
#define FLY_TABLE_FRAME_POINTERS 0xffffu /* has none by nature: JIT, Go, anonymous */

#define FLY_MAPPING_PAGE_BITS 36
#define FLY_MAPPING_PAGE_MASK ((1ULL << FLY_MAPPING_PAGE_BITS) - 1)

static inline struct fly_mapping fly_mapping_make(__u64 start, __u64 bytes, __u64 bias, __u32 table)
{
	struct fly_mapping mapping = {0};

	mapping.place = (start >> 12 & FLY_MAPPING_PAGE_MASK) | (__u64)(table & 0xffffu)
									<< FLY_MAPPING_PAGE_BITS;
	mapping.target = (bias >> 12 & FLY_MAPPING_PAGE_MASK) | (bytes >> 12)
									<< FLY_MAPPING_PAGE_BITS;
	return mapping;
}

static inline __u64 fly_mapping_start(const struct fly_mapping *mapping)
{
	return (mapping->place & FLY_MAPPING_PAGE_MASK) << 12;
}

static inline __u64 fly_mapping_bytes(const struct fly_mapping *mapping)
{
	return mapping->target >> FLY_MAPPING_PAGE_BITS << 12;
}

static inline __u32 fly_mapping_table(const struct fly_mapping *mapping)
{
	return (__u32)(mapping->place >> FLY_MAPPING_PAGE_BITS) & 0xffffu;
}

/* Modulo 2^48, as is the address it is taken from. */
static inline __u64 fly_mapping_bias(const struct fly_mapping *mapping)
{
	return (mapping->target & FLY_MAPPING_PAGE_MASK) << 12;
}
#define FLY_VADDR_MASK ((1ULL << 48) - 1)

#define FLY_IDENTITY_UNKNOWN   0ULL /* not compared */
#define FLY_IDENTITY_ANONYMOUS 1ULL /* memory of no file */
#define FLY_IDENTITY_FILE      2ULL /* of what fly_identity_make makes, these two bits */
#define FLY_IDENTITY_INODE     4ULL

#define FLY_VDSO_INO 1 /* stands for the vDSO, with size and time 0 */

/* Of a file's bytes, its time, its inode (0: stat says another than the kernel has, as overlayfs
 * does), and of the address that its first byte would be mapped at. */
static inline __u64 fly_identity_make(__u64 bytes, __u64 mtime_ns, __u64 ino, __u64 base)
{
	__u64 hash = (bytes ^ 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;

	hash = ((hash ^ hash >> 32) + mtime_ns) * 0xc4ceb9fe1a85ec53ULL;
	hash = ((hash ^ hash >> 32) + ino) * 0xff51afd7ed558ccdULL;
	hash = ((hash ^ hash >> 32) + base) * 0xc4ceb9fe1a85ec53ULL;
	hash ^= hash >> 32;
	return (hash & ~7ULL) | FLY_IDENTITY_FILE | (ino ? FLY_IDENTITY_INODE : 0);
}

/* A process that user space has not described is walked all the same: where its mappings are the
 * kernel knows, and which table a file has is known from the processes that were described. BPF
 * keeps that in fly_files, an LRU_HASH: what a mapping of a file at an offset has as its table. It
 * is good as long as the table of that number has the serial. */
struct fly_file_key {
	__u64 ino, bytes, mtime_ns, offset;
	__u32 dev, generation;
};
struct fly_file {
	__u64 serial;
	__u64 shift; /* bias - start of the mapping */
	__u32 table;
	__u32 pad;
};
#define FLY_FILES_MAX 1024u

struct fly_process {
	__u64 start_ns; /* start_boottime of the leader: another means a PID used again */
	__u32 at;	/* word number of the first mapping */
	__u32 count;	/* of mappings, at most FLY_MAPPINGS_MAX */
	__u32 samples;	/* BPF counts here: who is least sampled goes first */
	__u32 check;	/* fly_process_check */
};

/* An element that a walk has found may be given to another process at once, so that the walk reads
 * half of each: then this tells. */
static inline __u32 fly_process_check(const struct fly_process *process)
{
	return (__u32)(process->start_ns ^ process->start_ns >> 32) * 0x9e3779b1u ^
	       process->at * 0x85ebca6bu ^ process->count;
}

_Static_assert(sizeof(struct fly_mapping) == 4 * FLY_MAPPING_WORDS, "abi: fly_mapping");
_Static_assert(sizeof(struct fly_process) == 24, "abi: fly_process");

#endif
