#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Guest script: what flyball must do on every kernel it supports. Leaves in $RESULT, for each step,
# STEP.status (exit status), STEP.err (stderr) and its output; test_kernels.py judges them, so this
# script exits 0 whatever flyball did. Wants flyball, flyball-opener, flyball-reader, guest-split, bpfspin
# and two programs of tests/unwind.

# step NAME SECONDS COMMAND...: runs a command under a time limit (then its status is 124 or more).
step() {
	name=$1
	limit=$2
	shift 2
	echo "$name: $*"
	timeout -k 5 "$limit" "$@" >"$RESULT/$name.out" 2>"$RESULT/$name.err"
	echo $? >"$RESULT/$name.status"
	echo "$name: exit status $(cat "$RESULT/$name.status")"
}

step doctor 60 flyball doctor
step plan 60 flyball plan

# One program with a known split, followed from its first instruction.
step split 120 flyball record -F 99 --json -o "$RESULT/split.folded" -- \
	guest-split 8 "$RESULT/split.cpu_ns"

# The whole guest, with one program that lives in the kernel and one that does not.
dd if=/dev/urandom of=/dev/null bs=64k 2>/dev/null &
dd=$!
guest-split 4 /dev/null &
split=$!
step node 120 flyball record -a -d 5 -F 99 --json -o "$RESULT/node.folded"
kill "$dd" "$split"

# A BPF program on a kernel function, which its trampoline calls; both are gone at the end.
step trampoline 120 flyball record -F 499 --json -o "$RESULT/trampoline.folded" -- \
	bpfspin 3 bpf_fentry_test1

# Programs without frame pointers whose stacks have known answers.
for family in O2-pie-gcc-nofp-cet O2-static-clang-nofp-nocet; do
	step "family.$family" 200 flyball record -F 99 --json -o "$RESULT/family.$family.folded" -- \
		"family.$family" -w 300 -n 30
done
exit 0
