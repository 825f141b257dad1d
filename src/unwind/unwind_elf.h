/* SPDX-License-Identifier: Apache-2.0 */
/* unwind, inside: where the call frame information of an ELF file lies. */
#ifndef FLYBALL_UNWIND_ELF_H
#define FLYBALL_UNWIND_ELF_H

#include "unwind_read.h"

/* As unwind_locate, through a reader that is open. skip_eh_frame asks for .debug_frame only. */
int unwind_locate_with(struct unwind_reader *reader, bool skip_eh_frame, struct unwind_place *ret,
		       struct why *why);

#endif
