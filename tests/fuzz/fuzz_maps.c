// SPDX-License-Identifier: Apache-2.0
/* Any texts as /proc/PID/{stat,status,cgroup,maps}: the answer passes main's own check. */
#include "helpers/helpers_answer.h"
#include "helpers/reader_scan.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char stat[] = "1 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 ";
	struct wire_request job = {.op = WIRE_SCAN, .tgid = 1};
	int fds[WIRE_FILES_MAX];
	struct helpers_answer answer;
	struct buf out;

	for (size_t i = 0; i < WIRE_FILES_MAX; i++) {
		size_t from = size * i / 8, to = i == 3 ? size : size * (i + 1) / 8;

		fds[i] = memfd_create("text", MFD_CLOEXEC);
		if ((!i && size % 8 && write(fds[i], stat, sizeof(stat) - 1) < 0) ||
		    write(fds[i], data + from, to - from) < 0 || lseek(fds[i], 0, SEEK_SET))
			abort();
	}
	buf_init(&out, MEM_HELPERS, WIRE_ANSWER_MAX);
	reader_scan(&job, fds, "/bin/x", &out);
	if (helpers_answer_check(out.data, out.len, WIRE_SCAN, 1, NULL, 0, &answer))
		abort();
	helpers_answer_done(&answer);
	buf_done(&out);
	for (size_t i = 0; i < WIRE_FILES_MAX; i++)
		close(fds[i]);
	if (mem_live_bytes(MEM_HELPERS))
		abort();
	return 0;
}
