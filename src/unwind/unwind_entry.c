// SPDX-License-Identifier: Apache-2.0
/* CIEs and FDEs. A CIE is parsed when an FDE asks for it and kept, with the state its instructions
 * leave, in a small cache. */
#include "unwind_cfi.h"

#include <elf.h>

#include "unwind_encoded.h"

#define AUGMENTATION_MAX 16U
#define LENGTH_64	 0xffffffffU

static const struct unwind_arch archs[] = {
	{EM_X86_64, FLY_X86_RBP, FLY_X86_RSP, 0,
	 1U << 3 | 1U << 6 | 1U << 7 | 0xfU << 12}, /* rbx rbp rsp r12-r15 */
	{EM_AARCH64, FLY_AARCH64_FP, FLY_AARCH64_SP, 2, 0x7ffU << 19 | 1U << 31}, /* x19-x29 sp */
};

const struct unwind_arch *unwind_arch_find(uint16_t machine)
{
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		if (archs[i].machine == machine)
			return &archs[i];
	}
	return NULL;
}

void unwind_cfi_init(struct unwind_cfi *cfi, struct unwind_reader *reader,
		     const struct unwind_place *place, const struct unwind_arch *arch,
		     uint8_t tracked)
{
	*cfi = (struct unwind_cfi){
		.reader = reader, .place = place, .arch = arch, .tracked = tracked};
	cfi->end = place->offset + place->bytes;
}

static uint64_t address_of(const struct unwind_cfi *cfi, uint64_t offset)
{
	return cfi->place->address + (offset - cfi->place->offset);
}

/* Length and kind of the entry at offset; c is left behind the id. */
struct head {
	uint64_t body_end, id, id_at;
	bool wide, is_cie;
};

static enum unwind_entry_kind read_head(struct unwind_cfi *cfi, uint64_t offset,
					struct unwind_cursor *c, struct head *ret)
{
	bool eh = cfi->place->found != UNWIND_DEBUG_FRAME;
	uint64_t length;

	if (offset >= cfi->end)
		return UNWIND_ENTRY_END;
	unwind_seek(c, cfi->reader, offset, cfi->end);
	length = unwind_get32(c);
	ret->wide = length == LENGTH_64;
	if (ret->wide)
		length = unwind_get64(c);
	ret->id_at = unwind_tell(c);
	if (c->err || length > cfi->end - ret->id_at)
		return UNWIND_ENTRY_END;
	ret->body_end = ret->id_at + length;
	if (!length)
		return cfi->place->is_section ? UNWIND_ENTRY_OTHER : UNWIND_ENTRY_END;
	if (c->limit > ret->body_end) {
		if ((uint64_t)(c->end - c->p) > length) {
			c->end_offset -= (uint64_t)(c->end - c->p) - length;
			c->end = c->p + length;
		}
		c->limit = ret->body_end;
	}
	ret->id = ret->wide ? unwind_get64(c) : unwind_get32(c);
	ret->is_cie = eh ? ret->id == 0 : ret->id == (ret->wide ? UINT64_MAX : UINT32_MAX);
	return c->err ? UNWIND_ENTRY_BAD : UNWIND_ENTRY_FDE;
}

/* The letters after z, each with its data. An unknown one ends the reading, not the entry: the
 * length says where the data ends. */
static bool read_augmentation(struct unwind_cfi *cfi, struct unwind_cursor *c, const char *letters,
			      struct unwind_cie *cie)
{
	bool z = letters[0] == 'z';
	uint64_t end = 0, ignored;
	uint8_t encoding;

	cie->has_augmentation_data = z;
	if (z) {
		uint64_t bytes = unwind_get_uleb(c);

		end = unwind_tell(c) + bytes;
		if (c->err || bytes > c->limit - unwind_tell(c))
			return false;
	}
	for (const char *l = letters + z; *l; l++) {
		if (*l == 'S') {
			cie->is_signal = true;
		} else if (*l == 'R' && z) {
			cie->encoding = unwind_get8(c);
		} else if (*l == 'L' && z) {
			unwind_get8(c);
		} else if (*l == 'P' && z) {
			encoding = unwind_get8(c);
			if (encoding != UNWIND_PE_OMIT &&
			    !unwind_get_format(c, encoding & 0x7f, &ignored))
				break;
		} else if (*l != 'B' && *l != 'G') {
			if (!z)
				return false;
			break;
		}
	}
	if (z) {
		if (c->err || unwind_tell(c) > end)
			return false;
		unwind_skip(c, end - unwind_tell(c));
	}
	(void)cfi;
	return !c->err;
}

static bool read_cie(struct unwind_cfi *cfi, uint64_t offset, struct unwind_cie *cie)
{
	char letters[AUGMENTATION_MAX + 1];
	struct unwind_cursor c;
	struct unwind_run run;
	struct head head;
	uint64_t n = 0, ra;
	uint8_t version;

	if (read_head(cfi, offset, &c, &head) != UNWIND_ENTRY_FDE || !head.is_cie)
		return false;
	version = unwind_get8(&c);
	if (version != 1 && version != 3 && version != 4)
		return false;
	do {
		if (n > AUGMENTATION_MAX)
			return false;
		letters[n] = (char)unwind_get8(&c);
	} while (letters[n++]);
	if (version == 4) {
		if (unwind_get8(&c) != 8)
			return false;
		cie->segment_bytes = unwind_get8(&c);
	}
	n = unwind_get_uleb(&c);
	cie->data_align = unwind_get_sleb(&c);
	ra = version == 1 ? unwind_get8(&c) : unwind_get_uleb(&c);
	if (n > 256 || cie->data_align < -256 || cie->data_align > 256 || ra > 254 ||
	    cie->segment_bytes > 8)
		return false;
	cie->code_align = (uint32_t)n;
	cie->ra = (uint8_t)ra;
	cie->encoding = UNWIND_PE_ABSPTR;
	if (!read_augmentation(cfi, &c, letters, cie) ||
	    head.body_end - unwind_tell(&c) > UNWIND_CIE_BYTES_MAX)
		return false;
	run = (struct unwind_run){.cfi = cfi, .cie = cie};
	if (!unwind_run(&run, &c))
		return false;
	cie->initial = run.state;
	return true;
}

static const struct unwind_cie *find_cie(struct unwind_cfi *cfi, uint64_t offset)
{
	struct unwind_cie *cie = &cfi->cies[(offset / 4) % UNWIND_CIES];

	if (cie->key != offset + 1) {
		*cie = (struct unwind_cie){.key = offset + 1};
		cie->good = read_cie(cfi, offset, cie);
	}
	return cie->good ? cie : NULL;
}

enum unwind_entry_kind unwind_entry_read(struct unwind_cfi *cfi, uint64_t offset,
					 struct unwind_entry *ret)
{
	bool eh = cfi->place->found != UNWIND_DEBUG_FRAME;
	struct unwind_cursor *c = &ret->code;
	enum unwind_entry_kind kind;
	struct head head;
	uint64_t body, cie_at;

	kind = read_head(cfi, offset, c, &head);
	if (kind == UNWIND_ENTRY_END)
		return kind;
	ret->next = head.body_end;
	if (kind != UNWIND_ENTRY_FDE || head.is_cie)
		return kind == UNWIND_ENTRY_FDE ? UNWIND_ENTRY_OTHER : kind;
	body = unwind_tell(c);
	cie_at = eh ? head.id_at - head.id : cfi->place->offset + head.id;
	if (cie_at < cfi->place->offset || cie_at >= cfi->end)
		return UNWIND_ENTRY_BAD;
	if (cfi->cies[(cie_at / 4) % UNWIND_CIES].key != cie_at + 1) {
		find_cie(cfi, cie_at);
		unwind_seek(c, cfi->reader, body, head.body_end);
	}
	ret->cie = find_cie(cfi, cie_at);
	if (!ret->cie)
		return UNWIND_ENTRY_BAD;
	unwind_skip(c, ret->cie->segment_bytes);
	body = unwind_tell(c);
	if (!unwind_get_pointer(c, ret->cie->encoding, address_of(cfi, body), 0, &ret->start) ||
	    !unwind_get_format(c, ret->cie->encoding, &ret->bytes))
		return UNWIND_ENTRY_BAD;
	if (ret->cie->has_augmentation_data)
		unwind_skip(c, unwind_get_uleb(c));
	if (c->err || ret->start > UINT64_MAX - ret->bytes)
		return UNWIND_ENTRY_BAD;
	return UNWIND_ENTRY_FDE;
}

void unwind_entry_run(struct unwind_cfi *cfi, struct unwind_entry *entry, unwind_row row, void *ctx)
{
	static const struct fly_rule unsupported = {.cfa = FLY_CFA_UNSUPPORTED};
	struct unwind_run run;

	/* Not an initializer: it would clear the stack of remembered states for every function. */
	run.cfi = cfi;
	run.cie = entry->cie;
	run.state = entry->cie->initial;
	run.address = entry->start;
	run.end = entry->start + entry->bytes;
	run.row = row;
	run.ctx = ctx;
	run.changed = true;
	run.failed = false;
	run.remembered = 0;
	if (!unwind_run(&run, &entry->code) && run.address < run.end)
		row(ctx, run.address, &unsupported);
}
