// SPDX-License-Identifier: Apache-2.0
/* The CRC of a debug file is computed once for all batches of addresses, while the file stays what
 * it is by fstat. */
#include "reader_debug.h"

#include "elf/elf_debug.h"
#include "symbol/symbol_sources.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define VERIFIED_MAX 16

static struct verified {
	dev_t dev;
	ino_t ino;
	off_t bytes;
	struct timespec changed;
	uint32_t crc;
	uint8_t build_id_len;
	uint8_t build_id[ELF_BUILD_ID_MAX];
} verified[VERIFIED_MAX];
static size_t verified_next;

/* What must be equal for an earlier check to hold. */
static void verified_fill(struct verified *v, const struct stat *st, const struct elf_info *info,
			  const struct elf_debug_links *links)
{
	memset(v, 0, sizeof(*v));
	v->dev = st->st_dev;
	v->ino = st->st_ino;
	v->bytes = st->st_size;
	v->changed = st->st_ctim;
	v->crc = links->crc;
	v->build_id_len = info->build_id_len;
	memcpy(v->build_id, info->build_id, info->build_id_len);
}

static bool is_verified(const struct verified *v)
{
	for (size_t i = 0; i < VERIFIED_MAX; i++) {
		const struct verified *k = &verified[i];

		if (k->bytes && k->dev == v->dev && k->ino == v->ino && k->bytes == v->bytes &&
		    k->changed.tv_sec == v->changed.tv_sec &&
		    k->changed.tv_nsec == v->changed.tv_nsec && k->crc == v->crc &&
		    k->build_id_len == v->build_id_len &&
		    !memcmp(k->build_id, v->build_id, v->build_id_len))
			return true;
	}
	return false;
}

static int verify(struct elf_file *elf, const struct elf_debug_links *links, bool is_by_link,
		  int fd, struct elf_file *candidate, struct why *why)
{
	enum elf_debug_kind kind = is_by_link ? ELF_DEBUG_LINK : ELF_DEBUG_BUILD_ID;
	struct verified v;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return why_set(why, -errno, "fstat: %s", strerror(errno));
	verified_fill(&v, &st, elf_get_info(elf), links);
	if (is_by_link && is_verified(&v))
		return 0;
	err = elf_debug_verify(elf_get_info(elf), links, kind, candidate, why);
	if (!err && is_by_link)
		verified[verified_next++ % VERIFIED_MAX] = v;
	return err;
}

int reader_debug_open(struct elf_file *elf, const int *fds, size_t fd_count, uint32_t by_link,
		      struct elf_file **ret, size_t *ret_index, struct why *why)
{
	struct elf_debug_links links;

	elf_debug_links_read(elf, &links, NULL);
	for (size_t i = 0; i < fd_count; i++) {
		struct elf_file *candidate;

		if (elf_open(fds[i], &candidate, why))
			continue;
		if (!verify(elf, &links, by_link >> i & 1, fds[i], candidate, why)) {
			*ret = candidate;
			*ret_index = i;
			return 0;
		}
		elf_close(candidate);
	}
	return why_set(why, -ENOENT, "none of the debug files is the file's");
}

int reader_debug_lookup(struct elf_file *elf, const int *fds, size_t fd_count, uint32_t by_link,
			struct symbol_query *queries, size_t count, struct why *why)
{
	struct elf_debug_links links;

	elf_debug_links_read(elf, &links, NULL);
	for (size_t i = 0; i < fd_count; i++) {
		struct elf_file *candidate;
		int err = elf_open(fds[i], &candidate, why);

		if (err)
			continue;
		err = verify(elf, &links, by_link >> i & 1, fds[i], candidate, why);
		if (!err)
			err = symbol_lookup_table(candidate, queries, count, why);
		elf_close(candidate);
		if (!err || err == -ENOMEM)
			return err;
	}
	return why->text[0] ? -ENOENT
			    : why_set(why, -ENOENT, "none of the debug files is the file's");
}

void reader_debug_supplement(struct elf_file *debug, const int *fds, size_t fd_count,
			     struct elf_file **ret, char *text, size_t text_size)
{
	struct elf_debug_links links;
	size_t at = 0;

	*ret = NULL;
	*text = 0;
	elf_debug_links_read(debug, &links, NULL);
	if (!links.supplement[0] || !links.supplement_id_len)
		return;
	for (size_t i = 0; i < fd_count && !*ret; i++) {
		const struct elf_info *info;

		if (elf_open(fds[i], ret, NULL))
			continue;
		info = elf_get_info(*ret);
		if (info->build_id_len == links.supplement_id_len &&
		    !memcmp(info->build_id, links.supplement_id, links.supplement_id_len))
			return;
		elf_close(*ret);
		*ret = NULL;
	}
	if (2 * (size_t)links.supplement_id_len + strlen(links.supplement) + 2 > text_size)
		return;
	for (size_t i = 0; i < links.supplement_id_len; i++, at += 2)
		snprintf(text + at, text_size - at, "%02x", links.supplement_id[i]);
	text[at++] = ' ';
	text_print(links.supplement, strlen(links.supplement), text + at, text_size - at);
}

int reader_fetched_open(int fd, const uint8_t *build_id, size_t build_id_len, struct elf_file **ret,
			struct why *why)
{
	const struct elf_info *info;
	int err;

	*ret = NULL;
	err = fd < 0 ? why_set(why, -EBADMSG, "no descriptor came with the job")
		     : elf_open(fd, ret, why);

	if (err)
		return err;
	info = elf_get_info(*ret);
	if (build_id_len && info->build_id_len == build_id_len &&
	    !memcmp(info->build_id, build_id, build_id_len))
		return 0;
	elf_close(*ret);
	return why_set(why, -EBADMSG, "what was fetched has another build-id");
}

int reader_fetched_lookup(int fd, const uint8_t *build_id, size_t build_id_len,
			  struct symbol_query *queries, size_t count, struct why *why)
{
	struct elf_file *elf;
	int err = reader_fetched_open(fd, build_id, build_id_len, &elf, why);

	if (err)
		return err;
	err = symbol_lookup_table(elf, queries, count, why);
	elf_close(elf);
	return err;
}
