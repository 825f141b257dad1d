// SPDX-License-Identifier: Apache-2.0
/* Any name: bounded output, printable. The watch on time is the fuzzer's own timeout. */
#include "symbol/symbol.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool is_guarded;
	char out[SYMBOL_NAME_MAX], *name = calloc(1, size + 3);
	size_t len;

	if (!is_guarded && symbol_demangle_guard())
		abort();
	is_guarded = true;
	if (!name)
		return 0;
	/* Half of them begin as mangled names do. */
	if (size && data[0] & 1)
		memcpy(name, data[0] & 2 ? "_Z" : "_R", 2);
	if (size)
		memcpy(name + strlen(name), data, size);
	symbol_demangle(name, out, sizeof(out));
	len = strlen(out);
	if (!text_is_utf8(out, len))
		abort();
	symbol_demangle(name, out, size % 20);
	free(name);
	return 0;
}
