// SPDX-License-Identifier: Apache-2.0
/* PLT stubs, x86-64. Linkers write a handful of forms (psABI 5.2; binutils, lld, mold), each of
 * which jumps through a GOT slot or pushes its index: the relocation of that slot, or of that
 * index, names the symbol. So a stub is known by its bytes and by a relocation that agrees, and
 * its range is its form's. The relocations are streamed once for the batch. */
#include "symbol_order.h"
#include "symbol_sources.h"

#include "elf/elf_link.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STUB_BYTES   16
#define RANGES_MAX   8
#define RELOCS_MAX   SYMBOL_TABLE_MAX
#define RAW_NAME_MAX 8192 /* more than is demangled */
#define SUFFIX	     "@plt"
#define ANY	     0x100 /* any byte */
#define WORD	     ANY, ANY, ANY, ANY

/* The four bytes at slot are relative to what follows them; those at index count the PLT's own
 * relocations. */
struct form {
	uint8_t bytes, slot, index;
	uint16_t code[STUB_BYTES];
};

static const struct form forms[] = {
	/* jmp *slot(%rip); push $index; jmp PLT0 */
	{16, 2, 0, {0xff, 0x25, WORD, 0x68, WORD, 0xe9, WORD}},
	/* endbr64; bnd jmp *slot(%rip); nop */
	{16, 7, 0, {0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, WORD, ANY, ANY, ANY, ANY, ANY}},
	/* endbr64; jmp *slot(%rip); nop */
	{16, 6, 0, {0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, WORD, WORD, ANY, ANY}},
	/* endbr64; push $index; bnd jmp PLT0; nop */
	{16, 0, 5, {0xf3, 0x0f, 0x1e, 0xfa, 0x68, WORD, 0xf2, 0xe9, WORD, 0x90}},
	/* endbr64; push $index; jmp PLT0; xchg %ax,%ax */
	{16, 0, 5, {0xf3, 0x0f, 0x1e, 0xfa, 0x68, WORD, 0xe9, WORD, 0x66, 0x90}},
	/* endbr64; mov $index,%r11d; jmp *slot(%rip) */
	{16, 12, 0, {0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, WORD, 0xff, 0x25, WORD}},
	/* push $index; bnd jmp PLT0; nop */
	{16, 0, 1, {0x68, WORD, 0xf2, 0xe9, WORD, 0x0f, 0x1f, 0x44, 0x00, 0x00}},
	/* jmp *slot(%rip); xchg %ax,%ax */
	{8, 2, 0, {0xff, 0x25, WORD, 0x66, 0x90}},
	/* bnd jmp *slot(%rip); nop */
	{8, 3, 0, {0xf2, 0xff, 0x25, WORD, 0x90}},
};

struct range {
	uint64_t start, end;
};

struct stub {
	size_t query;
	uint64_t start;
	uint64_t key;  /* a slot, or an index of the PLT's relocations */
	bool is_index; /* sorted behind the slots */
	bool is_found;
	struct elf_relocation relocation;
};

struct plt {
	struct elf_file *elf;
	struct range ranges[RANGES_MAX];
	size_t range_count;
	struct stub *stubs;
	size_t stub_count, slot_count;
};

/* Sections that hold stubs; without section headers any place may. */
static void ranges_find(struct plt *p)
{
	char name[ELF_SECTION_NAME_MAX];
	Elf64_Shdr h;

	for (uint64_t i = 0; i < p->elf->shnum && p->range_count < RANGES_MAX; i++) {
		if (elf_section_header(p->elf, i, &h))
			return;
		if (!(h.sh_flags & SHF_EXECINSTR) || h.sh_type == SHT_NOBITS ||
		    h.sh_addr > UINT64_MAX - h.sh_size)
			continue;
		elf_section_name(p->elf, &h, name, sizeof(name));
		if (!strncmp(name, ".plt", 4) || !strncmp(name, ".iplt", 5))
			p->ranges[p->range_count++] =
				(struct range){h.sh_addr, h.sh_addr + h.sh_size};
	}
}

static bool may_hold_stub(const struct plt *p, uint64_t address)
{
	if (!p->elf->shnum)
		return true;
	for (size_t i = 0; i < p->range_count; i++) {
		if (address >= p->ranges[i].start && address < p->ranges[i].end)
			return true;
	}
	return false;
}

static bool form_matches(const struct form *form, const uint8_t *code, size_t bytes)
{
	if (bytes < form->bytes)
		return false;
	for (size_t i = 0; i < form->bytes; i++) {
		if (form->code[i] != ANY && form->code[i] != code[i])
			return false;
	}
	return true;
}

static void stub_note(struct plt *p, size_t query, uint64_t start, const struct form *form,
		      const uint8_t *code)
{
	struct stub *stub = &p->stubs[p->stub_count++];
	uint32_t word;

	*stub = (struct stub){.query = query, .start = start, .is_index = form->index != 0};
	memcpy(&word, code + (form->index ? form->index : form->slot), sizeof(word));
	if (form->index)
		stub->key = word;
	else
		stub->key = start + form->slot + 4U + (uint64_t)(int64_t)(int32_t)word;
}

/* Stubs are aligned to their size. */
static void stub_find(struct plt *p, size_t query, uint64_t address)
{
	for (uint64_t bytes = STUB_BYTES; bytes >= 8; bytes /= 2) {
		uint64_t start = address & ~(bytes - 1), offset;
		uint8_t code[STUB_BYTES];

		if (elf_vaddr_to_offset(p->elf, start, &offset) ||
		    elf_read(p->elf, offset, code, bytes))
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
			if (forms[i].bytes == bytes && form_matches(&forms[i], code, bytes)) {
				stub_note(p, query, start, &forms[i], code);
				return;
			}
		}
	}
}

static int stub_compare(const void *a, const void *b)
{
	const struct stub *p = a, *q = b;

	if (p->is_index != q->is_index)
		return p->is_index ? 1 : -1;
	return p->key < q->key ? -1 : p->key > q->key;
}

static void stubs_settle(struct stub *stubs, size_t count, uint64_t key,
			 const struct elf_relocation *r)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (stubs[mid].key < key)
			low = mid + 1;
		else
			high = mid;
	}
	/* The first relocation of a slot counts; so each stub is settled once. */
	for (; low < count && stubs[low].key == key && !stubs[low].is_found; low++) {
		stubs[low].is_found = true;
		stubs[low].relocation = *r;
	}
}

static int visit(void *ctx, const struct elf_relocation *r)
{
	struct plt *p = ctx;

	if (r->type != R_X86_64_JUMP_SLOT && r->type != R_X86_64_GLOB_DAT &&
	    r->type != R_X86_64_IRELATIVE && r->type != R_X86_64_64)
		return 0;
	stubs_settle(p->stubs, p->slot_count, r->offset, r);
	if (r->jump_index != ELF_NO_JUMP)
		stubs_settle(p->stubs + p->slot_count, p->stub_count - p->slot_count, r->jump_index,
			     r);
	return 0;
}

/* name leaves room for the suffix. */
static int stub_answer(struct symbol_query *query, uint64_t start, const char *name)
{
	size_t bytes = strlen(name) + sizeof(SUFFIX);
	char *text = mem_alloc(MEM_SYMBOL, bytes);

	if (!text)
		return -ENOMEM;
	snprintf(text, bytes, "%s" SUFFIX, name);
	symbol_answer(query, start, text, NULL);
	return 0;
}

/* Named after a dynamic symbol. */
static int symbols_answer(struct plt *p, struct symbol_query *queries)
{
	char text[SYMBOL_NAME_MAX - sizeof(SUFFIX) + 1], *raw;
	struct elf_dynsym table;
	int err = 0;

	if (elf_dynsym_find(p->elf, &table))
		return 0;
	raw = mem_alloc(MEM_SYMBOL, RAW_NAME_MAX);
	if (!raw)
		return -ENOMEM;
	for (size_t i = 0; i < p->stub_count && !err; i++) {
		const struct stub *stub = &p->stubs[i];
		struct elf_symbol symbol;

		if (!stub->is_found || !stub->relocation.symbol ||
		    elf_dynsym_read(p->elf, &table, stub->relocation.symbol, &symbol) ||
		    elf_symbol_name(p->elf, &symbol, raw, RAW_NAME_MAX) || !raw[0])
			continue;
		symbol_demangle(raw, text, sizeof(text));
		err = stub_answer(&queries[stub->query], stub->start, text);
	}
	mem_free(MEM_SYMBOL, raw);
	return err;
}

static bool is_ifunc(const struct stub *stub)
{
	return stub->is_found && stub->relocation.type == R_X86_64_IRELATIVE;
}

/* Named after the function that is chosen at run time: its symbol is at the resolver. */
static int ifuncs_answer(struct plt *p, struct symbol_query *queries, struct why *why)
{
	struct symbol_query *resolvers;
	size_t count = 0;
	int err;

	for (size_t i = 0; i < p->stub_count; i++)
		count += is_ifunc(&p->stubs[i]);
	if (!count)
		return 0;
	resolvers = mem_array(MEM_SYMBOL, count, sizeof(*resolvers));
	if (!resolvers)
		return -ENOMEM;
	count = 0;
	for (size_t i = 0; i < p->stub_count; i++) {
		if (is_ifunc(&p->stubs[i]))
			resolvers[count++].address = (uint64_t)p->stubs[i].relocation.addend;
	}
	err = symbol_lookup_table(p->elf, resolvers, count, why);
	for (size_t i = 0; i < p->stub_count && !err; i++) {
		uint64_t address = (uint64_t)p->stubs[i].relocation.addend;
		char plain[32];
		size_t at;

		if (!is_ifunc(&p->stubs[i]))
			continue;
		at = symbol_query_at_or_above(resolvers, count, address);
		snprintf(plain, sizeof(plain), "*ABS*+0x%llx", (unsigned long long)address);
		err = stub_answer(&queries[p->stubs[i].query], p->stubs[i].start,
				  resolvers[at].found && resolvers[at].start == address &&
						  strlen(resolvers[at].name) + sizeof(SUFFIX) <=
							  SYMBOL_NAME_MAX
					  ? resolvers[at].name
					  : plain);
	}
	for (size_t i = 0; i < count; i++)
		mem_free(MEM_SYMBOL, resolvers[i].name);
	mem_free(MEM_SYMBOL, resolvers);
	return err;
}

int symbol_lookup_plt(struct elf_file *elf, struct symbol_query *queries, size_t count,
		      struct why *why)
{
	struct plt p = {.elf = elf};
	int err = 0;

	symbol_queries_reset(queries, count);
	if (!count || elf->info.machine != EM_X86_64 || !elf->info.class64)
		return 0;
	ranges_find(&p);
	if (elf->shnum && !p.range_count)
		return 0;
	p.stubs = mem_array(MEM_SYMBOL, count, sizeof(*p.stubs));
	if (!p.stubs)
		return why_set(why, -ENOMEM, "out of memory");
	for (size_t i = 0; i < count; i++) {
		if (may_hold_stub(&p, queries[i].address))
			stub_find(&p, i, queries[i].address);
	}
	if (p.stub_count) {
		qsort(p.stubs, p.stub_count, sizeof(*p.stubs), stub_compare);
		while (p.slot_count < p.stub_count && !p.stubs[p.slot_count].is_index)
			p.slot_count++;
		err = elf_relocations(elf, RELOCS_MAX, visit, &p, why);
	}
	if (!err)
		err = symbols_answer(&p, queries);
	if (!err)
		err = ifuncs_answer(&p, queries, why);
	mem_free(MEM_SYMBOL, p.stubs);
	return err == -ENOMEM ? why_set(why, err, "out of memory") : err;
}
