/* SPDX-License-Identifier: Apache-2.0 */
/* unwind, inside: sorts in place, in time linear in count whatever the order (qsort(3) takes as
 * much memory again, or the square of the time). */
#ifndef FLYBALL_UNWIND_SORT_H
#define FLYBALL_UNWIND_SORT_H

#include <stddef.h>
#include <stdint.h>

void unwind_sort(uint64_t *keys, size_t count);

#endif
