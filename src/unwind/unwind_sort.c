// SPDX-License-Identifier: Apache-2.0
/* Radix exchange: parts by the highest bit that differs, then each part by the next. At most 64
 * levels deep. Linkers mostly leave the order right, which is tested first. */
#include "unwind_sort.h"

#define SMALL 24U

static void insert(uint64_t *keys, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		uint64_t key = keys[i];
		size_t k = i;

		for (; k && keys[k - 1] > key; k--)
			keys[k] = keys[k - 1];
		keys[k] = key;
	}
}

static void part(uint64_t *keys, size_t count, int bit)
{
	while (count > SMALL && bit >= 0) {
		uint64_t mask = 1ULL << bit--;
		size_t low = 0, high = count;

		while (low < high) {
			uint64_t key = keys[low];

			if (!(key & mask)) {
				low++;
				continue;
			}
			keys[low] = keys[--high];
			keys[high] = key;
		}
		part(keys, low, bit);
		keys += low;
		count -= low;
	}
	insert(keys, count);
}

void unwind_sort(uint64_t *keys, size_t count)
{
	uint64_t differ = 0;
	size_t i = 1;

	while (i < count && keys[i - 1] <= keys[i])
		i++;
	if (i >= count)
		return;
	for (i = 1; i < count; i++)
		differ |= keys[0] ^ keys[i];
	part(keys, count, 63 - __builtin_clzll(differ));
}
