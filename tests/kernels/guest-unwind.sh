#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Guest script: the unit tests of walks by tables, and what the verifier takes. Wants them, true, and
# libgcc_s.so.1, whose unwinder is the judge.

for test in test_kernel_unwind test_kernel_states; do
	"$test" >"$RESULT/$test.out" 2>&1
	echo $? >"$RESULT/$test.status"
done
