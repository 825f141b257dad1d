#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Guest script: proves the rig itself, with nothing of flyball. Wants the static program rig-probe.

uname -rv
echo "cpus $(nproc), BTF $(stat -c %s /sys/kernel/btf/vmlinux) bytes"
echo "clocksource $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
echo "lockdown $(cat /sys/kernel/security/lockdown 2>/dev/null || echo none)"
echo "perf_event_paranoid $(cat /proc/sys/kernel/perf_event_paranoid)"
echo "kallsyms with addresses: $(grep -vc '^0000000000000000' /proc/kallsyms)"
echo "sched tracepoints: $(grep -c '^sched:' /sys/kernel/tracing/available_events)"
rig-probe || exit
head -c 300000 /dev/urandom >"$RESULT/random"
sha256sum "$RESULT/random" | cut -d ' ' -f 1 >"$RESULT/random.sha256"
