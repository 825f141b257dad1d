// SPDX-License-Identifier: Apache-2.0
/* Checked symbol files stay mapped, a few of them, known by what fstat says: nobody but main can
 * change them. One that is cut short under a mapping ends the reader, which is replaced. */
#include "reader_packed.h"

#include "elf/elf_debug.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

#define OPEN_MAX    32
#define MAKE_CPU_NS 600000000ULL /* below the deadline for the answer */
#define CAPTURE_MAX (48U << 20)	 /* of a file's bytes, kept while its symbol file is made */

static struct opened {
	dev_t dev;
	ino_t ino;
	off_t bytes;
	struct timespec changed;
	struct symbol_packed *packed; /* NULL: free */
} opened[OPEN_MAX];
static size_t opened_next;

/* Who serves a FUSE file system says of its files what he likes. */
static bool is_protected(int fd)
{
	struct statfs fs;
	struct stat st;

	return !fstat(fd, &st) && !st.st_uid && !(st.st_mode & 022) && !fstatfs(fd, &fs) &&
	       fs.f_type != FUSE_SUPER_MAGIC;
}

static int pack(struct elf_file *source, const struct symbol_pack_options *options, int out,
		uint8_t *ret_digest, struct why *why)
{
	const struct elf_info *own = elf_get_info(source), *info = options->info;
	int err;

	if (own->build_id_len != info->build_id_len ||
	    memcmp(own->build_id, info->build_id, info->build_id_len) != 0)
		return why_set(why, -EBADMSG, "the file changes while it is read");
	err = elf_source_digest(source, ret_digest, why);
	return err ? err : symbol_pack(source, options, out, why);
}

int reader_packed_make(struct elf_file *elf, int fd, bool is_debug, int out,
		       uint8_t ret_digest[ELF_BLAKE2B_BYTES], struct why *why)
{
	struct elf_debug_links links = {0};
	struct symbol_pack_options options = {
		.digest = ret_digest,
		.is_table_only = is_debug,
		.info = elf_get_info(elf),
		.is_stripped = elf_is_stripped(elf),
		.is_protected = is_protected(fd),
		.link = links.name,
		.cpu_ns = MAKE_CPU_NS,
	};
	struct elf_file *source;
	int err;

	if (options.is_stripped)
		elf_debug_links_read(elf, &links, NULL);
	err = elf_open_captured(fd, CAPTURE_MAX, &source, why);
	if (err)
		return err;
	err = pack(source, &options, out, ret_digest, why);
	elf_close(source);
	return err;
}

static bool is_same(const struct opened *o, const struct stat *st)
{
	return o->packed && o->dev == st->st_dev && o->ino == st->st_ino &&
	       o->bytes == st->st_size && o->changed.tv_sec == st->st_mtim.tv_sec &&
	       o->changed.tv_nsec == st->st_mtim.tv_nsec;
}

static int find(int fd, const struct stat *st, struct opened **ret, struct why *why)
{
	struct opened *o;
	int err;

	for (size_t i = 0; i < OPEN_MAX; i++) {
		if (is_same(&opened[i], st)) {
			*ret = &opened[i];
			return 0;
		}
	}
	o = &opened[opened_next];
	symbol_packed_close(o->packed);
	memset(o, 0, sizeof(*o));
	err = symbol_packed_open(fd, NULL, &o->packed, why);
	if (err)
		return err;
	o->dev = st->st_dev;
	o->ino = st->st_ino;
	o->bytes = st->st_size;
	o->changed = st->st_mtim;
	opened_next = (opened_next + 1) % OPEN_MAX;
	*ret = o;
	return 0;
}

int reader_packed_get(int fd, const uint8_t digest[ELF_BLAKE2B_BYTES],
		      const struct symbol_packed **ret, struct why *why)
{
	static const uint8_t any[ELF_BLAKE2B_BYTES];
	const struct symbol_packed_header *h;
	struct opened *o;
	struct stat st;
	int err;

	if (fd < 0 || fstat(fd, &st))
		return why_set(why, -EBADMSG, "no symbol file came with the job");
	err = find(fd, &st, &o, why);
	if (err)
		return err;
	h = symbol_packed_get_header(o->packed);
	if (!memcmp(digest, any, sizeof(any))) {
		if (!h->is_protected)
			return why_set(
				why, -EACCES,
				"it must have been made of a file that only root could write");
	} else if (memcmp(digest, h->digest, sizeof(any)) != 0) {
		return why_set(why, -ESTALE, "the symbol file was made of something else");
	}
	*ret = o->packed;
	return 0;
}
