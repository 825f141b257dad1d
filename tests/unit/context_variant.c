// SPDX-License-Identifier: Apache-2.0
/* A program or library that publishes a thread context; how it reaches it is the compiler's flags.
 */
#include <stdint.h>

#ifdef ROOM
static _Thread_local char room[ROOM]; /* too large for the room that dlopen has in each thread */

char *context_variant_room(void);
char *context_variant_room(void)
{
	return room;
}
#endif
#ifdef ALIGNED
_Thread_local char aligned_before __attribute__((aligned(ALIGNED))) = 1;
#endif

extern _Thread_local const uint8_t *otel_thread_ctx_v1;
_Thread_local const uint8_t *otel_thread_ctx_v1 = (const uint8_t *)"";

const void *context_variant_address(void);

#ifdef UNUSED
const void *context_variant_address(void)
{
	return (const void *)1;
}
#else
const void *context_variant_address(void)
{
	return &otel_thread_ctx_v1;
}
#endif
