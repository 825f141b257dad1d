/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel types we touch, with only the fields we read. Those under preserve_access_index are
 * found in the running kernel's BTF at load (CO-RE), so neither order nor neighbours matter here.
 */
#ifndef FLYBALL_BPF_TYPES_H
#define FLYBALL_BPF_TYPES_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	__u32 i_generation;
	__s64 i_size;
	__s64 i_mtime_sec; /* these two since 6.11 */
	__u32 i_mtime_nsec;
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct inode___6_7 {
	struct timespec64 __i_mtime;
};

struct inode___old {
	struct timespec64 i_mtime;
};

struct dentry {
	struct inode *d_inode;
};

struct path {
	struct dentry *dentry;
};

struct fs_struct {
	struct path root;
};

struct ns_common {
	unsigned int inum;
};

struct mnt_namespace {
	struct ns_common ns;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct file {
	struct inode *f_inode;
};

struct linux_binprm {
	struct file *file;
};

typedef struct {
	void *vdso;
} mm_context_t;

struct maple_tree {
	void *ma_root;
};

struct mm_struct {
	struct maple_tree mm_mt;
	unsigned long start_stack;
	mm_context_t context;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end, vm_flags, vm_pgoff;
	struct mm_struct *vm_mm;
	struct file *vm_file;
};

struct thread_struct {
	unsigned long fsbase;
};

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct fs_struct *fs;
	struct nsproxy *nsproxy;
	struct thread_struct thread;
};

/* cs became 16 bits wide in 6.9 (FRED): libbpf adjusts the width of the load. */
struct pt_regs {
	unsigned long r15, r14, r13, r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
};

#pragma clang attribute pop

/* The context of a perf_event program: user ABI, not CO-RE (struct bpf_perf_event_data). */
struct fly_perf_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};

struct fly_perf_context {
	struct fly_perf_regs regs;
	__u64 sample_period;
	__u64 addr;
};

/* vm_area_struct.vm_flags */
#define VM_EXEC 0x4

/* task_struct.flags */
#define PF_IO_WORKER   0x00000010
#define PF_USER_WORKER 0x00004000 /* vhost and io_uring, 6.4; no user task has it before */
#define PF_KTHREAD     0x00200000

/* Selectors of user code on x86-64. */
#define USER_CS_32 0x23

#endif
