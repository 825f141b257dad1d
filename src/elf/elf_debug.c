// SPDX-License-Identifier: Apache-2.0
/* Separate debug files. Names come from the file: a debug link is a plain file name and nothing
 * else, so that it leads nowhere but to the three places of gdb's convention ("Debugging
 * Information in Separate Files"). CRC-32 is that of IEEE 802.3, which liblzma has. */
#include "elf_debug.h"

#include "elf_link.h"

#include <errno.h>
#include <lzma.h>
#include <string.h>

#define DEBUG_ROOT  "/usr/lib/debug"
#define READ_BYTES  65536
#define ID_TEXT_MAX (2 * ELF_BUILD_ID_MAX + 1)

/* A file name, or a path, that holds nothing odd. */
static bool is_plain(const char *text, bool is_path)
{
	if (!text[0] || !strcmp(text, ".") || !strcmp(text, ".."))
		return false;
	for (const char *p = text; *p; p++) {
		if ((unsigned char)*p < 0x20 || *p == 0x7f || (*p == '/' && !is_path))
			return false;
	}
	return true;
}

/* NUL-terminated text at the start of a section; behind it, what the caller reads itself. */
static int text_read(struct elf_file *elf, const Elf64_Shdr *h, char *out, size_t out_size)
{
	size_t n = h->sh_size < out_size ? (size_t)h->sh_size : out_size;

	if (!elf_section_is_inside(elf, h) || elf_read(elf, h->sh_offset, out, n) ||
	    !memchr(out, 0, n))
		return -EBADMSG;
	return 0;
}

static int link_read(struct elf_file *elf, struct elf_debug_links *ret)
{
	uint64_t at;
	Elf64_Shdr h;
	int err = elf_section_named(elf, ".gnu_debuglink", &h);

	if (err || h.sh_type == SHT_NOBITS)
		return 0;
	err = text_read(elf, &h, ret->name, sizeof(ret->name));
	if (err)
		return err;
	at = (strlen(ret->name) + 1 + 3) & ~3ULL;
	if (!is_plain(ret->name, false) || h.sh_size < sizeof(ret->crc) ||
	    at > h.sh_size - sizeof(ret->crc) ||
	    elf_read(elf, h.sh_offset + at, &ret->crc, sizeof(ret->crc)))
		return -EBADMSG;
	return 0;
}

static int supplement_read(struct elf_file *elf, struct elf_debug_links *ret)
{
	uint64_t at, bytes;
	Elf64_Shdr h;
	int err = elf_section_named(elf, ".gnu_debugaltlink", &h);

	if (err || h.sh_type == SHT_NOBITS)
		return 0;
	err = text_read(elf, &h, ret->supplement, sizeof(ret->supplement));
	if (err)
		return err;
	at = strlen(ret->supplement) + 1;
	bytes = h.sh_size - at;
	if (!is_plain(ret->supplement, true) || !bytes || bytes > ELF_BUILD_ID_MAX ||
	    elf_read(elf, h.sh_offset + at, ret->supplement_id, (size_t)bytes))
		return -EBADMSG;
	ret->supplement_id_len = (uint8_t)bytes;
	return 0;
}

bool elf_is_stripped(struct elf_file *elf)
{
	Elf64_Shdr h;

	for (uint64_t i = 0; i < elf->shnum && !elf_section_header(elf, i, &h); i++) {
		if (h.sh_type == SHT_SYMTAB)
			return false;
	}
	return true;
}

void elf_debug_links_read(struct elf_file *elf, struct elf_debug_links *ret, struct why *why)
{
	memset(ret, 0, sizeof(*ret));
	if (link_read(elf, ret)) {
		ret->name[0] = 0;
		why_set(why, -EBADMSG, ".gnu_debuglink is damaged");
	}
	if (supplement_read(elf, ret)) {
		ret->supplement[0] = 0;
		ret->supplement_id_len = 0;
		why_set(why, -EBADMSG, ".gnu_debugaltlink is damaged");
	}
}

struct candidates {
	elf_debug_visit visit;
	void *ctx;
	char path[ELF_DEBUG_PATH_MAX];
};

/* A path that does not fit is none. */
static int offer(struct candidates *c, enum elf_debug_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int offer(struct candidates *c, enum elf_debug_kind kind, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(c->path, sizeof(c->path), fmt, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof(c->path))
		return 0;
	return c->visit(c->ctx, kind, c->path);
}

static int offer_build_id(struct candidates *c, enum elf_debug_kind kind, const uint8_t *id,
			  size_t len)
{
	char text[ID_TEXT_MAX];

	if (len < 2 || len > ELF_BUILD_ID_MAX)
		return 0;
	for (size_t i = 0; i < len; i++)
		snprintf(text + 2 * i, 3, "%02x", id[i]);
	return offer(c, kind, DEBUG_ROOT "/.build-id/%.2s/%s.debug", text, text + 2);
}

int elf_debug_candidates(const struct elf_info *info, const struct elf_debug_links *links,
			 const char *path, elf_debug_visit visit, void *ctx)
{
	const char *slash = path[0] == '/' ? strrchr(path, '/') : NULL;
	int dir = slash ? (int)(slash - path) : 0; /* without its slash; "" for the root */
	struct candidates c = {.visit = visit, .ctx = ctx};
	const char *name = links->name;
	int got;

	got = offer_build_id(&c, ELF_DEBUG_BUILD_ID, info->build_id, info->build_id_len);
	if (!got && name[0] && slash) {
		/* A file that links to its own name would be found as its own debug file. */
		if (strcmp(name, slash + 1) != 0)
			got = offer(&c, ELF_DEBUG_LINK, "%.*s/%s", dir, path, name);
		if (!got)
			got = offer(&c, ELF_DEBUG_LINK, "%.*s/.debug/%s", dir, path, name);
		if (!got)
			got = offer(&c, ELF_DEBUG_LINK, DEBUG_ROOT "%.*s/%s", dir, path, name);
	}
	if (!got && links->supplement[0] == '/')
		got = offer(&c, ELF_DEBUG_SUPPLEMENT, "%s", links->supplement);
	else if (!got && links->supplement[0] && slash)
		got = offer(&c, ELF_DEBUG_SUPPLEMENT, "%.*s/%s", dir, path, links->supplement);
	if (!got && links->supplement[0])
		got = offer_build_id(&c, ELF_DEBUG_SUPPLEMENT, links->supplement_id,
				     links->supplement_id_len);
	return got;
}

static int crc_check(struct elf_file *candidate, uint32_t want, struct why *why)
{
	uint64_t size = candidate->info.file_bytes;
	uint32_t crc = 0;

	if (size > ELF_DEBUG_BYTES_MAX)
		return why_set(why, -ERANGE, "a debug file of %llu bytes",
			       (unsigned long long)size);
	for (uint64_t at = 0; at < size;) {
		size_t n = size - at < READ_BYTES ? (size_t)(size - at) : READ_BYTES;
		const void *p = elf_look(candidate, &candidate->symbols, at, n);

		if (!p)
			return why_set(why, -EBADMSG, "the debug file changed while it was read");
		crc = lzma_crc32(p, n, crc);
		at += n;
	}
	if (crc != want)
		return why_set(why, -EBADMSG, "the debug file's CRC is %08x and not %08x", crc,
			       want);
	return 0;
}

static bool is_same_id(const struct elf_info *have, const uint8_t *id, size_t len)
{
	return len && have->build_id_len == len && !memcmp(have->build_id, id, len);
}

int elf_debug_verify(const struct elf_info *info, const struct elf_debug_links *links,
		     enum elf_debug_kind kind, struct elf_file *candidate, struct why *why)
{
	const struct elf_info *have = &candidate->info;

	if (have->machine != info->machine || have->class64 != info->class64)
		return why_set(why, -EBADMSG, "the debug file is for another machine");
	if (kind == ELF_DEBUG_SUPPLEMENT) {
		if (!is_same_id(have, links->supplement_id, links->supplement_id_len))
			return why_set(why, -EBADMSG, "the supplement has another build-id");
		return 0;
	}
	/* Where both have one it must be the same, also where the link's CRC decides. */
	if ((kind == ELF_DEBUG_BUILD_ID || (info->build_id_len && have->build_id_len)) &&
	    !is_same_id(have, info->build_id, info->build_id_len))
		return why_set(why, -EBADMSG, "the debug file has another build-id");
	return kind == ELF_DEBUG_LINK ? crc_check(candidate, links->crc, why) : 0;
}
