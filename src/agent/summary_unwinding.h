/* SPDX-License-Identifier: Apache-2.0 */
/* summary: what lay in kernel memory for stacks to be walked by tables. Private to the part. */
#ifndef FLYBALL_AGENT_SUMMARY_UNWINDING_H
#define FLYBALL_AGENT_SUMMARY_UNWINDING_H

#include <jansson.h>
#include <stdio.h>

#include "agent/unwinding.h"

void summary_unwinding_print(const struct unwinding_stats *u, FILE *to);
json_t *summary_unwinding_json(const struct unwinding_stats *u);

#endif
