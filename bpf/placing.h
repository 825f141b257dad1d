/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mappings as the kernel itself knows them, for processes that user space has not described: young
 * ones, and those there was no room for (abi/table_space.h, fly_files).
 *
 * The kernel keeps the mappings of a process in a maple tree since 6.1. It is read here without a
 * lock, as the kernel's own page faults do: nodes are replaced, not changed, and a mapping found is
 * checked to be this process's and to hold the address. What was freed meanwhile reads as garbage
 * and names no file. (bpf_find_vma works once in a tick; the iterator over mappings of 6.7 refuses
 * to work in interrupts since 6.18.)
 */
#ifndef FLYBALL_BPF_PLACING_H
#define FLYBALL_BPF_PLACING_H

#include "walking.h"

#include <bpf/bpf_core_read.h>

/* An encoded node: its address, a multiple of 256, and its type in bits 3 to 6. */
#define FLY_MAPLE_ADDRESS(enode) ((enode) & ~255ULL)
#define FLY_MAPLE_TYPE(enode)	 ((__u32)((enode) >> 3) & 15)
#define FLY_MAPLE_LEAF		 1
#define FLY_MAPLE_RANGE		 2
#define FLY_MAPLE_ARANGE	 3
/* Words of a node: its parent; pivots, each the last address of its slot, 15 or 9 of them; slots.
 */
#define FLY_MAPLE_PIVOTS 15
#define FLY_MAPLE_SLOTS	 16
#define FLY_MAPLE_ASLOTS 10
#define FLY_MAPLE_LEVELS 6

#define FLY_KERNEL_START 0xff00000000000000ULL

/* Number of pivots below the address. Of the 9-pivot kind slots are counted as well, which as
 * kernel addresses are above any; and what is unused is 0. */
static __always_inline __u32 fly_maple_slot(const __u64 *node, __u64 address)
{
	__u32 slot = 0;

	for (__u32 i = 1; i <= FLY_MAPLE_PIVOTS; i++) {
		__u64 below = ((node[i] - 1) >> 12) - (address >> 12);

		FLY_ROWS_OPAQUE(below); /* no branch: lookup.h says why */
		slot += (__u32)(below >> 63);
	}
	return slot;
}

/* The struct vm_area_struct that the tree has for an address, or 0. */
static __always_inline __u64 fly_maple_find(struct fly_vma *vma, __u64 root, __u64 address)
{
	__u64 enode = root;

	for (int level = 0; level < FLY_MAPLE_LEVELS; level++) {
		__u32 type = FLY_MAPLE_TYPE(enode), at;

		if (enode < FLY_KERNEL_START || type < FLY_MAPLE_LEAF || type > FLY_MAPLE_ARANGE)
			return 0;
		if (bpf_probe_read_kernel(vma->node, sizeof(vma->node),
					  (void *)FLY_MAPLE_ADDRESS(enode)))
			return 0;
		/* A dead node is its own parent. */
		if (FLY_MAPLE_ADDRESS(vma->node[0]) == FLY_MAPLE_ADDRESS(enode))
			return 0;
		at = fly_maple_slot(vma->node, address);
		at += type == FLY_MAPLE_ARANGE ? FLY_MAPLE_ASLOTS : FLY_MAPLE_SLOTS;
		enode = vma->node[at & (FLY_MAPLE_WORDS - 1)];
		if (type == FLY_MAPLE_LEAF)
			return enode < FLY_KERNEL_START ? 0 : enode;
	}
	return 0;
}

#define fly_read(from, field)                                                                      \
	({                                                                                         \
		typeof((from)->field) value = 0;                                                   \
                                                                                                   \
		bpf_core_read(&value, sizeof(value), &(from)->field);                              \
		value;                                                                             \
	})

static __always_inline __u64 fly_inode_time(struct inode *inode)
{
	struct inode___6_7 *older = (void *)inode;
	struct inode___old *oldest = (void *)inode;
	struct timespec64 time = {0};

	if (bpf_core_field_exists(inode->i_mtime_sec)) {
		time.tv_sec = fly_read(inode, i_mtime_sec);
		time.tv_nsec = fly_read(inode, i_mtime_nsec);
	} else if (bpf_core_field_exists(older->__i_mtime)) {
		bpf_core_read(&time, sizeof(time), &older->__i_mtime);
	} else {
		bpf_core_read(&time, sizeof(time), &oldest->i_mtime);
	}
	return (__u64)time.tv_sec * 1000000000ULL + (__u64)time.tv_nsec;
}

/* Names the file in vma->key. False: memory of no file. */
static __always_inline bool fly_vma_name(struct fly_vma *vma, struct mm_struct *mm,
					 struct vm_area_struct *from)
{
	struct file *file = fly_read(from, vm_file);
	struct inode *inode;

	vma->key = (struct fly_file_key){.ino = FLY_VDSO_INO};
	if (!file)
		return vma->start == (unsigned long)mm->context.vdso;
	inode = fly_read(file, f_inode);
	vma->key.ino = fly_read(inode, i_ino);
	vma->key.bytes = (__u64)fly_read(inode, i_size);
	vma->key.generation = fly_read(inode, i_generation);
	vma->key.mtime_ns = fly_inode_time(inode);
	vma->key.offset = fly_read(from, vm_pgoff) << 12;
	vma->key.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	return 1;
}

#define FLY_VMA_NONE 0
#define FLY_VMA_ANON 1 /* executable, of no file */
#define FLY_VMA_FILE 2 /* vma->key */

/* The executable mapping of an address in the current process, in scratch->vma. */
__noinline int fly_vma_find(struct fly_vma *vma, __u64 address)
{
	struct mm_struct *mm = bpf_get_current_task_btf()->mm;
	struct vm_area_struct *found;

	if (!vma || !mm || !fly_walk_is_code(address))
		return FLY_VMA_NONE;
	found = (void *)fly_maple_find(vma, (__u64)mm->mm_mt.ma_root, address);
	if (!found || fly_read(found, vm_mm) != mm)
		return FLY_VMA_NONE;
	vma->start = fly_read(found, vm_start);
	vma->end = fly_read(found, vm_end);
	if (address < vma->start || address >= vma->end || !(fly_read(found, vm_flags) & VM_EXEC))
		return FLY_VMA_NONE;
	return fly_vma_name(vma, mm, found) ? FLY_VMA_FILE : FLY_VMA_ANON;
}

static __always_inline bool fly_vma_is_of(const struct fly_vma *vma, __u64 identity)
{
	return identity == fly_identity_make(vma->key.bytes, vma->key.mtime_ns,
					     identity & FLY_IDENTITY_INODE ? vma->key.ino : 0,
					     vma->start - vma->key.offset);
}

/* FLY_UNWIND_IS. Code that is being written is not executable meanwhile. */
__noinline int fly_vma_is(__u64 address, __u64 identity)
{
	__u32 zero = 0;
	struct fly_scratch *scratch = bpf_map_lookup_elem(&fly_scratch, &zero);
	int kind;

	if (!scratch)
		return 0;
	kind = fly_vma_find(&scratch->vma, address);
	if (identity == FLY_IDENTITY_ANONYMOUS)
		return kind != FLY_VMA_FILE;
	return kind == FLY_VMA_FILE && fly_vma_is_of(&scratch->vma, identity);
}

/* FLY_UNWIND_ASK */
__noinline int fly_vma_ask(struct fly_unwind *u, __u64 address)
{
	__u32 zero = 0, number = FLY_TABLE_FRAME_POINTERS;
	struct fly_scratch *scratch = bpf_map_lookup_elem(&fly_scratch, &zero);
	const struct fly_table *table;
	struct fly_file *file = NULL;
	struct fly_vma *vma;
	int kind;

	if (!u || !scratch)
		return 0;
	vma = &scratch->vma;
	kind = fly_vma_find(vma, address);
	if (kind == FLY_VMA_NONE)
		return 0;
	if (kind == FLY_VMA_FILE) {
		number = FLY_TABLE_NONE;
		file = bpf_map_lookup_elem(&fly_files, &vma->key);
	}
	if (file) {
		number = file->table;
		table = fly_table_get(number);
		if (number != FLY_TABLE_FRAME_POINTERS && (!table || table->serial != file->serial))
			number = FLY_TABLE_NONE;
	}
	u->start = vma->start;
	u->bytes = vma->end - vma->start;
	u->bias = vma->start + (file ? file->shift : 0);
	fly_unwind_enter(u, number);
	return 1;
}

/* ---------------------------------------------------------------- learning */
#define FLY_LEARN_MAX 128 /* mappings of one process */

struct fly_learning {
	__u32 at, count; /* as in fly_unwind */
};

/* User space has described this mapping, and it is still that: so the file has that table. */
static long fly_learn_one(__u32 index, const struct fly_learning *learning)
{
	__u32 zero = 0, at = learning->at + FLY_MAPPING_WORDS * index;
	/* Looked up, since 6.1 takes no key from what a function was given. */
	struct fly_scratch *scratch = bpf_map_lookup_elem(&fly_scratch, &zero);
	const void *block = fly_block(learning->at);
	const struct fly_table *table;
	struct fly_mapping mapping;
	struct fly_file *known;
	struct fly_vma *vma;

	if (index >= learning->count || !block || !scratch)
		return 1;
	vma = &scratch->vma;
	mapping.place = FLY_ROWS_PAIR(block, at);
	mapping.target = FLY_ROWS_PAIR(block, at + 2);
	mapping.identity = FLY_ROWS_PAIR(block, at + 4);
	if (fly_mapping_table(&mapping) == FLY_TABLE_NONE ||
	    fly_vma_find(vma, fly_mapping_start(&mapping)) != FLY_VMA_FILE ||
	    vma->start != fly_mapping_start(&mapping) || !fly_vma_is_of(vma, mapping.identity))
		return 0;
	vma->file = (struct fly_file){.shift = fly_mapping_bias(&mapping) - vma->start,
				      .table = fly_mapping_table(&mapping)};
	if (vma->file.table != FLY_TABLE_FRAME_POINTERS) {
		table = fly_table_get(vma->file.table);
		if (!table || !table->serial)
			return 0;
		vma->file.serial = table->serial;
	}
	known = bpf_map_lookup_elem(&fly_files, &vma->key);
	if (!known || known->serial != vma->file.serial || known->table != vma->file.table)
		bpf_map_update_elem(&fly_files, &vma->key, &vma->file, BPF_ANY);
	return 0;
}

/* From a process that user space has described. */
__noinline int fly_learn(__u32 at, __u32 count)
{
	struct fly_learning learning = {.at = at, .count = count};

	bpf_loop(FLY_LEARN_MAX, fly_learn_one, &learning, 0);
	return 0;
}

#endif
