/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Between bench/walk.c and the program that walks the stack of who calls it. */
#ifndef FLYBALL_BENCH_WALK_DOOR_H
#define FLYBALL_BENCH_WALK_DOOR_H

enum walk_kind {
	WALK_TABLES,   /* fly_unwind_user, mappings described by user space */
	WALK_PLACED,   /* the same, mappings as the kernel has them */
	WALK_POINTERS, /* fly_walk_user */
	WALK_KERNEL,   /* bpf_get_stack(BPF_F_USER_STACK) */
	WALK_KINDS,
	WALK_LEARN = WALK_KINDS, /* no walk: what files have what tables */
};

struct walk_door {
	__u32 kind;
	__u32 at, count; /* of the mappings */
	__u32 frames;	 /* answers: found, */
	__u64 cut;	 /* why not more, */
	__u64 ns;	 /* and how long it took */
};

#endif
