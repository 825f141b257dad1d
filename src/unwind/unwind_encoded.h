/* SPDX-License-Identifier: Apache-2.0 */
/* unwind, inside: pointers as .eh_frame writes them (LSB Core, 10.5.1, DW_EH_PE). */
#ifndef FLYBALL_UNWIND_ENCODED_H
#define FLYBALL_UNWIND_ENCODED_H

#include "unwind_read.h"

#define UNWIND_PE_ABSPTR   0x00
#define UNWIND_PE_PCREL	   0x10
#define UNWIND_PE_DATAREL  0x30
#define UNWIND_PE_INDIRECT 0x80
#define UNWIND_PE_OMIT	   0xff

/* Only the value, of format `encoding & 15`. False for an unknown format. */
bool unwind_get_format(struct unwind_cursor *c, uint8_t encoding, uint64_t *ret);
/* The address: here is the link-time address of the pointer itself, data that of .eh_frame_hdr (0:
 * unknown). False when it cannot be known without running the program. */
bool unwind_get_pointer(struct unwind_cursor *c, uint8_t encoding, uint64_t here, uint64_t data,
			uint64_t *ret);

#endif
