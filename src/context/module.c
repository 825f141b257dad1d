// SPDX-License-Identifier: Apache-2.0
/*
 * Where otel_thread_ctx_v1 is, by what the linker and the dynamic linker left in memory: the symbol
 * by the hash table of the dynamic symbols, then the relocation that stands for the access, whose
 * slot holds the answer; the main program needs none (local exec).
 */
#include "context.h"

#include "elf/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#define SYMBOL	    "otel_thread_ctx_v1"
#define HEADERS_MAX 64
#define DYNAMIC_MAX 4096
#define CHAIN_MAX   65536
#define RELA_MAX    2000000 /* entries; libLLVM has 600,000 */
#define RELA_READ   128
#define SYMTAB_MAX  20000000
#define USER_MIN    0x10000

#ifndef R_AARCH64_TLSDESC
#define R_AARCH64_TLSDESC 1031
#endif

struct module {
	const struct context_memory *memory;
	uint16_t machine;
	uint64_t bias; /* address - link-time address */
	uint64_t start;
	bool has_tls, is_main;
	uint64_t tls_vaddr, tls_bytes, tls_align;
	uint64_t dynamic, dynamic_bytes;
	uint64_t symbols, strings, gnu_hash, hash, rela, rela_bytes, jump, jump_bytes;
};

static bool read_at(const struct module *m, uint64_t address, void *out, size_t bytes)
{
	return m->memory->read(m->memory->ctx, address, out, bytes);
}

static void take_header(struct module *m, const Elf64_Phdr *h)
{
	switch (h->p_type) {
	case PT_LOAD:
		/* The first page is at the module's start, whatever its link-time address is. */
		if (!h->p_offset)
			m->bias = m->start - (h->p_vaddr & ~(uint64_t)4095);
		break;
	case PT_TLS:
		m->has_tls = true;
		m->tls_vaddr = h->p_vaddr;
		m->tls_bytes = h->p_memsz;
		m->tls_align = h->p_align;
		break;
	case PT_DYNAMIC:
		m->dynamic = h->p_vaddr;
		m->dynamic_bytes = h->p_memsz;
		break;
	default:
		break;
	}
}

static int read_headers(struct module *m, struct why *why)
{
	Elf64_Ehdr e;

	if (!read_at(m, m->start, &e, sizeof(e)) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
	    e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_phentsize != sizeof(Elf64_Phdr) ||
	    e.e_phnum > HEADERS_MAX)
		return why_set(why, -ENOENT, "no ELF header in memory");
	if (e.e_machine != EM_X86_64 && e.e_machine != EM_AARCH64)
		return why_set(why, -EOPNOTSUPP, "of another machine");
	m->machine = e.e_machine;
	for (uint32_t i = 0; i < e.e_phnum; i++) {
		Elf64_Phdr h;

		if (!read_at(m, m->start + e.e_phoff + i * sizeof(h), &h, sizeof(h)))
			return why_set(why, -EBADMSG, "its program headers are not in memory");
		take_header(m, &h);
	}
	if (!m->has_tls)
		return why_set(why, -ENOENT, "it has no thread-local variables");
	if (m->tls_align & (m->tls_align - 1))
		return why_set(why, -EBADMSG, "an alignment that is none");
	if (!m->tls_align)
		m->tls_align = 1;
	return 0;
}

/* glibc writes addresses there in place of link-time ones, musl does not. */
static uint64_t dynamic_address(const struct module *m, uint64_t value)
{
	return value && value < m->start ? value + m->bias : value;
}

static void take_dynamic(struct module *m, const Elf64_Dyn *d)
{
	switch (d->d_tag) {
	case DT_SYMTAB:
		m->symbols = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_STRTAB:
		m->strings = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_GNU_HASH:
		m->gnu_hash = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_HASH:
		m->hash = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_RELA:
		m->rela = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_RELASZ:
		m->rela_bytes = d->d_un.d_val;
		break;
	case DT_JMPREL:
		m->jump = dynamic_address(m, d->d_un.d_ptr);
		break;
	case DT_PLTRELSZ:
		m->jump_bytes = d->d_un.d_val;
		break;
	default:
		break;
	}
}

static void read_dynamic(struct module *m)
{
	uint64_t count = m->dynamic_bytes / sizeof(Elf64_Dyn);

	for (uint64_t i = 0; i < count && i < DYNAMIC_MAX; i++) {
		Elf64_Dyn d;

		if (!read_at(m, m->bias + m->dynamic + i * sizeof(d), &d, sizeof(d)) ||
		    d.d_tag == DT_NULL)
			return;
		take_dynamic(m, &d);
	}
}

/* True when symbol number index is the variable, defined here. */
static bool is_variable(const struct module *m, uint32_t index, uint64_t *ret_value)
{
	char name[sizeof(SYMBOL)];
	Elf64_Sym s;

	if (!read_at(m, m->symbols + (uint64_t)index * sizeof(s), &s, sizeof(s)) ||
	    ELF64_ST_TYPE(s.st_info) != STT_TLS || s.st_shndx == SHN_UNDEF ||
	    !read_at(m, m->strings + s.st_name, name, sizeof(name)) ||
	    memcmp(name, SYMBOL, sizeof(name)) != 0)
		return false;
	*ret_value = s.st_value;
	return true;
}

static uint32_t gnu_hash_of(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (uint8_t)*name;
	return hash;
}

static uint32_t sysv_hash_of(const char *name)
{
	uint32_t hash = 0;

	for (; *name; name++) {
		hash = (hash << 4) + (uint8_t)*name;
		hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
	}
	return hash;
}

/* Table: {buckets, first symbol, bloom words, shift}, bloom, buckets, a hash for each symbol whose
 * lowest bit ends its chain. */
static bool find_by_gnu_hash(const struct module *m, uint32_t *ret_index, uint64_t *ret_value)
{
	uint32_t head[4], index, hash = gnu_hash_of(SYMBOL), found;
	uint64_t buckets;

	if (!read_at(m, m->gnu_hash, head, sizeof(head)) || !head[0])
		return false;
	buckets = m->gnu_hash + sizeof(head) + 8ULL * head[2];
	if (!read_at(m, buckets + 4ULL * (hash % head[0]), &index, 4) || index < head[1])
		return false;
	for (int i = 0; i < CHAIN_MAX; i++, index++) {
		if (!read_at(m, buckets + 4ULL * head[0] + 4ULL * (index - head[1]), &found, 4))
			return false;
		if ((found | 1) == (hash | 1) && is_variable(m, index, ret_value)) {
			*ret_index = index;
			return true;
		}
		if (found & 1)
			return false;
	}
	return false;
}

/* Table: {buckets, symbols}, buckets, the next symbol of the chain for each symbol. */
static bool find_by_sysv_hash(const struct module *m, uint32_t *ret_index, uint64_t *ret_value)
{
	uint32_t head[2], index;

	if (!read_at(m, m->hash, head, sizeof(head)) || !head[0])
		return false;
	if (!read_at(m, m->hash + 8 + 4ULL * (sysv_hash_of(SYMBOL) % head[0]), &index, 4))
		return false;
	for (int i = 0; i < CHAIN_MAX && index; i++) {
		if (is_variable(m, index, ret_value)) {
			*ret_index = index;
			return true;
		}
		if (!read_at(m, m->hash + 8 + 4ULL * head[0] + 4ULL * index, &index, 4))
			return false;
	}
	return false;
}

static bool find_dynamic_symbol(const struct module *m, uint32_t *ret_index, uint64_t *ret_value)
{
	if (!m->symbols || !m->strings)
		return false;
	if (m->gnu_hash)
		return find_by_gnu_hash(m, ret_index, ret_value);
	return m->hash && find_by_sysv_hash(m, ret_index, ret_value);
}

/* ---------------------------------------------------------------- .symtab */
struct symtab {
	struct elf_file *elf;
	uint64_t value;
};

static int take_symtab(void *ctx, const struct elf_symbol *symbol)
{
	struct symtab *t = ctx;
	char name[sizeof(SYMBOL) + 1];

	if (elf_symbol_name(t->elf, symbol, name, sizeof(name)) || strcmp(name, SYMBOL) != 0)
		return 0;
	t->value = symbol->vaddr;
	return 1;
}

static bool find_in_symtab(int fd, uint64_t *ret_value)
{
	struct symtab t = {NULL, 0};
	struct why why;
	bool found;

	if (fd < 0 || elf_open(fd, &t.elf, &why))
		return false;
	found = elf_tls_symbols(t.elf, SYMTAB_MAX, take_symtab, &t, &why) == 1;
	*ret_value = t.value;
	elf_close(t.elf);
	return found;
}

/* ---------------------------------------------------------------- relocations */
enum model { MODEL_NONE, MODEL_TLSDESC, MODEL_INITIAL_EXEC, MODEL_GENERAL_DYNAMIC };

static enum model model_of(uint16_t machine, uint64_t type)
{
	if (machine == EM_X86_64)
		return type == R_X86_64_TLSDESC	   ? MODEL_TLSDESC
		       : type == R_X86_64_TPOFF64  ? MODEL_INITIAL_EXEC
		       : type == R_X86_64_DTPMOD64 ? MODEL_GENERAL_DYNAMIC
						   : MODEL_NONE;
	return type == R_AARCH64_TLSDESC      ? MODEL_TLSDESC
	       : type == R_AARCH64_TLS_TPREL  ? MODEL_INITIAL_EXEC
	       : type == R_AARCH64_TLS_DTPMOD ? MODEL_GENERAL_DYNAMIC
					      : MODEL_NONE;
}

struct access {
	enum model model;
	uint64_t slot; /* address */
};

/* By its symbol, or, where the linker has bound it, by none and its value: in the relocation, or
 * for general dynamic in the second half of the slot. */
static bool is_access(const struct module *m, const Elf64_Rela *r, enum model model, uint32_t index,
		      uint64_t value)
{
	uint64_t symbol = ELF64_R_SYM(r->r_info), slot[2];

	if (symbol)
		return symbol == index;
	if (model != MODEL_GENERAL_DYNAMIC)
		return (uint64_t)r->r_addend == value;
	return read_at(m, m->bias + r->r_offset, slot, sizeof(slot)) && slot[1] == value;
}

static bool find_access(const struct module *m, uint64_t table, uint64_t bytes, uint32_t index,
			uint64_t value, struct access *ret)
{
	uint64_t count = bytes / sizeof(Elf64_Rela);
	Elf64_Rela r[RELA_READ];

	if (!table || count > RELA_MAX)
		return false;
	for (uint64_t i = 0; i < count; i += RELA_READ) {
		uint64_t n = count - i < RELA_READ ? count - i : RELA_READ;

		if (!read_at(m, table + i * sizeof(r[0]), r, n * sizeof(r[0])))
			return false;
		for (uint64_t k = 0; k < n; k++) {
			enum model model = model_of(m->machine, ELF64_R_TYPE(r[k].r_info));

			if (model == MODEL_NONE || !is_access(m, &r[k], model, index, value))
				continue;
			*ret = (struct access){model, m->bias + r[k].r_offset};
			return true;
		}
	}
	return false;
}

static bool is_dynamic_place(uint64_t module)
{
	return module && module <= CONTEXT_MODULES_MAX;
}

/* Slot: {function, argument}. Where the variable is at a constant offset, that is the argument;
 * else it points to {module, offset}. A small argument, and one that leads nowhere, is an offset.
 */
static int follow_descriptor(const struct module *m, uint64_t slot, struct context_place *ret,
			     struct why *why)
{
	uint64_t descriptor[2], dynamic[2];

	if (!read_at(m, slot, descriptor, sizeof(descriptor)))
		return why_set(why, -EBADMSG, "its descriptor is not in memory");
	if (!descriptor[0])
		return why_set(why, -EAGAIN, "its descriptor is not resolved yet");
	*ret = (struct context_place){0, (int64_t)descriptor[1]};
	if (descriptor[1] >= USER_MIN && read_at(m, descriptor[1], dynamic, sizeof(dynamic)) &&
	    is_dynamic_place(dynamic[0]))
		*ret = (struct context_place){dynamic[0], (int64_t)dynamic[1]};
	return 0;
}

static int follow(const struct module *m, const struct access *access, struct context_place *ret,
		  struct why *why)
{
	uint64_t slot[2];

	if (access->model == MODEL_TLSDESC)
		return follow_descriptor(m, access->slot, ret, why);
	if (!read_at(m, access->slot, slot, sizeof(slot)))
		return why_set(why, -EBADMSG, "its slot is not in memory");
	/* A variable is never at offset 0, and no module has the number 0. */
	if (!slot[0])
		return why_set(why, -EAGAIN, "its slot is not resolved yet");
	if (access->model == MODEL_INITIAL_EXEC) {
		*ret = (struct context_place){0, (int64_t)slot[0]};
		return 0;
	}
	if (!is_dynamic_place(slot[0]))
		return why_set(why, -EBADMSG, "a module number that is none");
	*ret = (struct context_place){slot[0], (int64_t)slot[1]};
	return 0;
}

int64_t context_local_exec(uint16_t machine, uint64_t value, uint64_t tls_vaddr, uint64_t tls_bytes,
			   uint64_t tls_align)
{
	uint64_t mask = tls_align - 1;

	/* Variant I: behind the two words at TP; variant II: in front of it. */
	if (machine == EM_AARCH64)
		return (int64_t)(value + 16 + ((tls_vaddr - 16) & mask));
	return (int64_t)(value - tls_bytes - ((-tls_vaddr - tls_bytes) & mask));
}

int context_find(const struct context_memory *memory, const struct context_module *module,
		 struct context_place *ret, struct why *why)
{
	struct module m = {
		.memory = memory,
		.start = module->start,
		.is_main = module->is_main,
	};
	struct access access = {MODEL_NONE, 0};
	uint32_t index = 0;
	uint64_t value;
	int err = read_headers(&m, why);

	if (err)
		return err;
	read_dynamic(&m);
	if (!find_dynamic_symbol(&m, &index, &value) && !find_in_symtab(module->fd, &value))
		return why_set(why, -ENOENT, "it has no " SYMBOL);
	if (find_access(&m, m.rela, m.rela_bytes, index, value, &access) ||
	    find_access(&m, m.jump, m.jump_bytes, index, value, &access))
		return follow(&m, &access, ret, why);
	if (!m.is_main)
		return why_set(why, -EOPNOTSUPP, "nothing in it refers to its " SYMBOL);
	*ret = (struct context_place){
		0, context_local_exec(m.machine, value, m.tls_vaddr, m.tls_bytes, m.tls_align)};
	return 0;
}
