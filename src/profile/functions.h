/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions: the functions of a profile, each (name, module) once. Inlined calls are functions;
 * what has no name is one function "[unnamed]" for each module: single addresses would never make a
 * list.
 */
#ifndef FLYBALL_PROFILE_FUNCTIONS_H
#define FLYBALL_PROFILE_FUNCTIONS_H

#include "model.h"

struct profile_functions {
	const struct profile *p;
	struct profile_budget budget;
	struct strings *texts;
	struct profile_intern pairs; /* of ids of texts: name, module */
	uint32_t *first;    /* by location, and one more: where its frames begin in of_frame */
	uint32_t *of_frame; /* functions, innermost first */
	struct profile_function_row *rows;
};

/* On failure too, _done is to be called. */
int profile_functions_init(struct profile_functions *f, const struct profile *p);
void profile_functions_done(struct profile_functions *f);
/* A function by its words; for frames that stand for what is no code. */
int64_t profile_functions_add(struct profile_functions *f, const char *name, const char *module);
const char *profile_functions_name(const struct profile_functions *f, uint32_t function);
const char *profile_functions_module(const struct profile_functions *f, uint32_t function);

#endif
