/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpfspin: keeps a CPU inside a BPF program.
 *
 *   bpfspin SECONDS
 *
 * The program, named like its command, is run by BPF_PROG_TEST_RUN, which does not keep the kernel
 * from running perf_event programs meanwhile. At the end it is gone.
 */
#include <bpf/bpf.h>
#include <linux/bpf.h>

#include "workload.h"

#define ROUNDS 30000 /* the verifier walks them all */
#define REPEAT 100

static const struct bpf_insn code[] = {
	{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = ROUNDS},
	{.code = BPF_ALU64 | BPF_SUB | BPF_K, .dst_reg = BPF_REG_1, .imm = 1},
	{.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = BPF_REG_1, .off = -2},
	{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	{.code = BPF_JMP | BPF_EXIT},
};

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
	char packet[64] = "";
	uint64_t end;
	int program;

	if (argc != 2)
		return 2;
	program = bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, name, "GPL", code,
				sizeof(code) / sizeof(code[0]), NULL);
	must(program >= 0, "load");
	end = wall_ns() + seconds_ns(argv[1]);
	while (wall_ns() < end) {
		LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = packet,
			    .data_size_in = sizeof(packet), .repeat = REPEAT);

		must(!bpf_prog_test_run_opts(program, &run), "run");
	}
	return 0;
}
