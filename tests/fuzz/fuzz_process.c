// SPDX-License-Identifier: Apache-2.0
/* Any order of any event and answer: the tracker stays sound and gives all memory back. */
#include "process/process.h"

#include "../unit/fake_helpers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STEP_BYTES 6
#define S	   1000000000ULL

static const char *const paths[] = {"/bin/a", "//anon", "[vdso]", "/memfd:x (deleted)"};

static void answer(uint8_t how, const uint8_t *text, size_t len)
{
	struct fake_request *r = fake_last((enum fake_kind)(how % 3), 0);
	char cgroup[64] = "";
	struct elf_info elf = {.build_id_len = how & 1 ? 20 : 0};
	struct helpers_mapping m[3] = {{4096, 8192, 0, how, 8, 1, "/bin/a", false},
				       {6000, 9000, 99, 2, 8, 1, "", false},
				       {9000, 9999, 0, 0, 0, 0, "[vdso]", false}};
	struct helpers_scan scan = {.tgid = r ? r->tgid : 0,
				    .process_start_ns = (how & 3) * S,
				    .comm = "c",
				    .exe = "/bin/a",
				    .cgroup = cgroup,
				    .mount_namespace = how & 1,
				    .mapping_count = how & 3,
				    .mappings = m,
				    .is_cut = how & 16};
	struct helpers_result result = {.err = how & 32 ? -ESRCH : 0,
					.info = &elf,
					.dev = 1,
					.ino = how & 7,
					.scan = &scan};

	memcpy(cgroup, text, len < sizeof(cgroup) - 1 ? len : sizeof(cgroup) - 1);
	if (r)
		fake_answer(r, &result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct process_options options = {.helpers = fake_helpers(), .proc = "/nonexistent"};
	struct process_tracker *t;
	uint64_t now = S;

	fake_reset();
	if (process_tracker_new(&options, &t))
		return 0;
	for (; size >= STEP_BYTES; data += STEP_BYTES, size -= STEP_BYTES) {
		uint32_t a = data[1] % 8, b = data[2] % 8;
		struct process_mmap m = {.start = data[3] * 512ULL,
					 .bytes = data[4] * 512ULL,
					 .build_id_len = data[5] % 32,
					 .build_id = {data[5]},
					 .ino = data[5],
					 .path = paths[data[2] % 4]};
		struct process_exec e = {data[3] % 4 * S, data[4] % 4, 1, data[5], 1, 2, b, "e"};
		struct process_place at;
		int64_t id;

		now += data[0] * 1000000ULL;
		/* clang-format off */
		switch (data[0] % 9) {
		case 0: process_fork(t, now, b, a, data[3] & 1 ? a : a + 100); break;
		case 1: process_exit(t, now, a, data[3] & 1 ? a : a + 100); break;
		case 2: process_comm(t, now, a, a, "c", data[3] & 1); break;
		case 3: process_map(t, now, a, &m); break;
		case 4: process_exec(t, now, a, &e); break;
		case 5: process_tick(t, now + data[3] * S / 16); break;
		case 6: answer(data[1], data + 2, size - 2); break;
		case 7: data[3] ? process_want_scan(t, a) : process_lost(t, now); break;
		default:
			id = process_of_sample(t, now, a, data[3] % 4 * S, data[4] % 4, "s");
			process_place(t, id, data[4] * 512ULL, &at);
			process_file_want(t, at.file);
		}
		/* clang-format on */
	}
	process_tracker_free(t);
	fake_cancel_all();
	if (mem_live_bytes(MEM_PROCESS))
		abort();
	return 0;
}
