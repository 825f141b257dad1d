/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbol, symbol files: all names of one binary in one small file, made once, so that a name costs
 * a binary search, and is there when the binary is not.
 *
 *   header    struct symbol_packed_header
 *   names     NUL-terminated, mangled as they were found; each once for a symbol table
 *   starts    uint32_t[count], from base on, rising: where another name (or none) begins
 *   refs      uint32_t[count]: a name's offset in names (0: none), and SYMBOL_PACKED_FINAL when it
 *             is not to be demangled; or SYMBOL_PACKED_RESUMED and the number of
 *   resumed   struct symbol_packed_resumed: names whose symbol began before this start
 *
 * Native byte order. The digest is that of the source (elf_source.h): a file that was made of
 * something else is another file. checksum is BLAKE2b-256 over all that follows the header, then
 * the header with a checksum of zeros; it is there for damage, not for trust: whoever reads checks
 * every number all the same. Rules and sources are those of symbol_lookup_file; what they would
 * fail on, and what is past a limit, gets no symbol file at all.
 */
#ifndef FLYBALL_SYMBOL_PACKED_H
#define FLYBALL_SYMBOL_PACKED_H

#include "elf/elf_source.h"
#include "symbol.h"

#define SYMBOL_PACKED_MAGIC	  "FLYSYMS"
#define SYMBOL_PACKED_VERSION	  1
#define SYMBOL_PACKED_LINK_MAX	  256
#define SYMBOL_PACKED_SYMBOLS_MAX (768U << 10) /* of one table; 24 bytes each while it is made */
#define SYMBOL_PACKED_COUNT_MAX	  (2U << 20)
#define SYMBOL_PACKED_NAMES_MAX	  (192U << 20)
#define SYMBOL_PACKED_BYTES_MAX	  (256U << 20)
#define SYMBOL_PACKED_RESUMED	  (1U << 31)
#define SYMBOL_PACKED_FINAL	  (1U << 30)

struct symbol_packed_header {
	char magic[8];
	uint32_t version, header_bytes;
	uint64_t file_bytes, base;
	uint32_t count, resumed_count, names_bytes;
	uint8_t is_stripped;  /* the binary has no .symtab: a debug file may have more */
	uint8_t is_protected; /* when it was read, the binary was root's, and only root could write
				 it */
	uint8_t pad[2];
	uint8_t digest[ELF_BLAKE2B_BYTES];
	char link[SYMBOL_PACKED_LINK_MAX]; /* its .gnu_debuglink, "" for none */
	struct elf_info info;		   /* of the binary */
	uint8_t checksum[ELF_BLAKE2B_BYTES];
};

struct symbol_packed_resumed {
	uint32_t back; /* from this start to the symbol's */
	uint32_t ref;
};

_Static_assert(sizeof(struct symbol_packed_header) == 368 + sizeof(struct elf_info) &&
		       sizeof(struct elf_info) == 488,
	       "symbol: with another header it is another version");

/* --- making */
struct symbol_pack_options {
	const uint8_t *digest; /* of the source */
	bool is_table_only;    /* of a separate debug file nothing but its symbol table counts */
	const struct elf_info *info; /* NULL: elf's own */
	bool is_stripped, is_protected;
	const char *link;
	uint64_t cpu_ns; /* own CPU time from the call on, 0: any; past it -ETIME */
};
/* Writes the symbol file of elf to fd, a new and empty file, with pwrite(2). -ERANGE past a limit;
 * any error leaves a file that symbol_packed_open refuses. */
int symbol_pack(struct elf_file *elf, const struct symbol_pack_options *options, int fd,
		struct why *why);

/* --- reading */
struct symbol_packed;
/* Checks all of it. The descriptor is not needed any more; the file must not shrink before
 * symbol_packed_close. -EBADMSG: damaged, -EOPNOTSUPP: another version's, -ESTALE: of another
 * digest than the one asked for (NULL: any). */
int symbol_packed_open(int fd, const uint8_t *digest, struct symbol_packed **ret, struct why *why);
/* The same over bytes in memory, borrowed, aligned to 8. */
int symbol_packed_open_memory(const void *data, size_t bytes, const uint8_t *digest,
			      struct symbol_packed **ret, struct why *why);
void symbol_packed_close(struct symbol_packed *packed);
const struct symbol_packed_header *symbol_packed_get_header(const struct symbol_packed *packed);

struct symbol_packed_hit {
	uint64_t start;
	const char *name; /* as in the file */
	bool is_final;
};
/* False: nothing has a name there. */
bool symbol_packed_find(const struct symbol_packed *packed, uint64_t address,
			struct symbol_packed_hit *ret);
/* As symbol_lookup_file. -ENOMEM. */
int symbol_packed_lookup(const struct symbol_packed *packed, struct symbol_query *queries,
			 size_t count, struct why *why);

#endif
