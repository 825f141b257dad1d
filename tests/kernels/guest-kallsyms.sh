#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Guest script: loads the modules that lie in /flyball, a few of them, and hands back what the kernel
# says of its symbols, its modules and its BPF programs. Wants name-kernel and addresses made there.

for module in /flyball/*.ko; do
	insmod "$module" || exit 1
done
cat /proc/modules >"$RESULT/modules"
cat /proc/kallsyms >"$RESULT/kallsyms"
exit 0
