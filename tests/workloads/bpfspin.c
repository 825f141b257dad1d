/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bpfspin: keeps a CPU inside a BPF program.
 *
 *   bpfspin SECONDS [FUNCTION]
 *
 * The program, named like its command, is run by BPF_PROG_TEST_RUN, which does not keep the kernel
 * from running perf_event programs meanwhile. At the end it is gone. With a function of the
 * kernel's that such a run calls (bpf_fentry_test1) the program is attached there, by a trampoline.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
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

static int loaded(const char *name, const char *function)
{
	LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = BPF_TRACE_FENTRY);
	int id, program;

	if (!function)
		return bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, name, "GPL", code,
				     sizeof(code) / sizeof(code[0]), NULL);
	id = libbpf_find_vmlinux_btf_id(function, BPF_TRACE_FENTRY);
	must(id > 0, "find the function");
	options.attach_btf_id = (uint32_t)id;
	program = bpf_prog_load(BPF_PROG_TYPE_TRACING, name, "GPL", code,
				sizeof(code) / sizeof(code[0]), &options);
	must(program < 0 || bpf_raw_tracepoint_open(NULL, program) >= 0, "attach");
	return program;
}

int main(int argc, char **argv)
{
	const char *function = argc > 2 ? argv[2] : NULL;
	const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
	char packet[64] = "";
	uint64_t end;
	int program;

	if (argc != 2 && argc != 3)
		return 2;
	program = loaded(name, function);
	must(program >= 0, "load");
	end = wall_ns() + seconds_ns(argv[1]);
	while (wall_ns() < end) {
		LIBBPF_OPTS(bpf_test_run_opts, run);

		if (!function) {
			run.data_in = packet;
			run.data_size_in = sizeof(packet);
			run.repeat = REPEAT;
		}
		must(!bpf_prog_test_run_opts(program, &run), "run");
	}
	return 0;
}
