/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writers: one function for each output format; profile_write (write.c) chooses. Each walks the
 * profile and hands bytes on; what it builds meanwhile is charged to no budget but is smaller than
 * the profile. A new format: its function here, its line in write.c.
 */
#ifndef FLYBALL_PROFILE_WRITERS_H
#define FLYBALL_PROFILE_WRITERS_H

#include "model.h"
#include "stream.h"

int profile_write_folded(const struct profile *p, bool per_thread, struct profile_out *out);
int profile_write_pprof(const struct profile *p, struct profile_out *out);
int profile_write_otlp(const struct profile *p, struct profile_out *out);
int profile_write_otlp_json(const struct profile *p, struct profile_out *out);
/* page: the template, which holds the marker @FLYBALL_DATA@ once; -EINVAL otherwise. */
int profile_write_html(const struct profile *p, const char *page, size_t page_bytes,
		       struct profile_out *out);

#endif
