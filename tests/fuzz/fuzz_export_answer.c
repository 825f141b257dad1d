// SPDX-License-Identifier: Apache-2.0
/* Any bytes as what a receiver answers: the first chooses the protocol, lines end with \n, and what
 * follows an empty line is the body up to a NUL; trailers come behind it. */
#include "export/export_answer.h"

#include <stdlib.h>
#include <string.h>

static size_t take_lines(struct export_answer *a, const char *p, size_t size, bool is_head)
{
	size_t at = 0;

	while (at < size) {
		const char *end = memchr(p + at, '\n', size - at);
		size_t n = end ? (size_t)(end - p) - at : size - at;

		if (is_head && !n)
			return at + 1;
		export_answer_line(a, p + at, n);
		at += n + (end ? 1 : 0);
	}
	return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data + 1, *end;
	struct export_judgement j;
	struct export_answer a;
	size_t at, body;

	if (!size)
		return 0;
	size--;
	export_answer_init(&a, (enum export_protocol)(data[0] % 3));
	at = take_lines(&a, p, size, true);
	/* A frame's length has NULs: the body of those is all that is left. */
	end = data[0] & 0x80 ? memchr(p + at, '\0', size - at) : NULL;
	body = end ? (size_t)(end - p) - at : size - at;
	export_answer_data(&a, p + at, body);
	if (end)
		take_lines(&a, end + 1, size - at - body - 1, false);
	else if (data[0] & 0x40)
		export_answer_line(&a, "grpc-status: 0", 14);
	export_answer_judge(&a, &j);
	if (j.verdict != EXPORT_ACCEPTED && !j.why.text[0])
		abort();
	if (j.retry_ns > EXPORT_RETRY_MAX_NS + 1000000000)
		abort();
	if (!text_is_utf8(a.message, strlen(a.message)))
		abort();
	export_answer_done(&a);
	if (mem_live_bytes(MEM_EXPORT))
		abort();
	return 0;
}
