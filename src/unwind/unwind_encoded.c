// SPDX-License-Identifier: Apache-2.0
/* Formats and bases of DW_EH_PE. Text- and function-relative pointers and the aligned form do not
 * occur in 64-bit Linux files and are refused. */
#include "unwind_encoded.h"

bool unwind_get_format(struct unwind_cursor *c, uint8_t encoding, uint64_t *ret)
{
	switch (encoding & 0x0f) {
	case 0x00: /* absptr */
	case 0x04: /* udata8 */
	case 0x0c: /* sdata8 */
	case 0x08: /* signed absptr */
		*ret = unwind_get64(c);
		return true;
	case 0x01:
		*ret = unwind_get_uleb(c);
		return true;
	case 0x02:
		*ret = unwind_get16(c);
		return true;
	case 0x03:
		*ret = unwind_get32(c);
		return true;
	case 0x09:
		*ret = (uint64_t)unwind_get_sleb(c);
		return true;
	case 0x0a:
		*ret = (uint64_t)(int16_t)unwind_get16(c);
		return true;
	case 0x0b:
		*ret = (uint64_t)(int32_t)unwind_get32(c);
		return true;
	default:
		return false;
	}
}

bool unwind_get_pointer(struct unwind_cursor *c, uint8_t encoding, uint64_t here, uint64_t data,
			uint64_t *ret)
{
	uint64_t value;

	if (encoding == UNWIND_PE_OMIT || encoding & UNWIND_PE_INDIRECT ||
	    !unwind_get_format(c, encoding, &value))
		return false;
	switch (encoding & 0x70) {
	case UNWIND_PE_ABSPTR:
		*ret = value;
		return true;
	case UNWIND_PE_PCREL:
		*ret = here + value;
		return true;
	case UNWIND_PE_DATAREL:
		*ret = data + value;
		return data != 0;
	default:
		return false;
	}
}
