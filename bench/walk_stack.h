/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLYBALL_BENCH_WALK_STACK_H
#define FLYBALL_BENCH_WALK_STACK_H

void walk_stack_plain(unsigned int depth, void (*then)(void *), void *ctx);
void walk_stack_pointers(unsigned int depth, void (*then)(void *), void *ctx);

#endif
