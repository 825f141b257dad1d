/* SPDX-License-Identifier: Apache-2.0 */
/* export_private: what the files of this part share: kinds, and the bodies of a block's requests.
 */
#ifndef FLYBALL_EXPORT_PRIVATE_H
#define FLYBALL_EXPORT_PRIVATE_H

#include "export.h"
#include "export_answer.h"

struct export_kind_traits {
	const char *name;
	enum export_protocol protocol;
	bool takes_pprof;
	const char *path, *content_type;
};
const struct export_kind_traits *export_kind_traits(enum export_kind kind);

/* The requests of one block, as they are on the wire. One body is held at a time. */
struct export_bodies {
	const struct export_options *options;
	struct buf *parts; /* none: the block goes out as it is */
	size_t count, cap, at;
	const struct export_block *block;
	struct buf body;      /* of the request at hand */
	size_t encoded_bytes; /* of it, before compression */
};
void export_bodies_init(struct export_bodies *b, const struct export_options *options);
void export_bodies_done(struct export_bodies *b);
/* Makes the first body. The block must last. */
int export_bodies_begin(struct export_bodies *b, const struct export_block *block, struct why *why);
/* Makes the next one: 1, or 0: that was all, or negative errno. */
int export_bodies_next(struct export_bodies *b, struct why *why);

#endif
