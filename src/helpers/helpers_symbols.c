// SPDX-License-Identifier: Apache-2.0
/* Symbol files, main's side. A request for names waits until its file's symbol file is there, then
 * goes to the reader with that file's descriptor, and with none of the binary. On the way there:
 *
 *   NEW ─▶ the reader tells the digest of what names come from ─▶ in the cache? READY
 *     └─ nothing of this build-id in the cache: the reader fills a file of ours ─▶ READY
 *   anything fails: NONE, and names are read from the binary itself
 *
 * A symbol file is called after the build-id and the digest of the binary, those of separate debug
 * files as well: if the debug file is there its own digest must be that in the symbol file. Where
 * it is gone, or the binary is and with it all but the build-id, anybody could have made what there
 * is in the cache: it counts only if it was made of a file that nobody but root could write, and,
 * for a build-id, if it is the only one. A symbol file that the reader refuses is made anew once.
 */
#include "helpers_inside.h"

#include "abi/reasons.h"
#include "cache_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES   128
#define ID_BYTES     20 /* of build-id and digest, in a name; the digest is checked as a whole */
#define PART_OLD_SEC 3600
#define OWN_END	     ".sym"
#define DEBUG_END    ".debug-sym"

enum packed_state { NEW, BUSY, READY, NONE };

struct packed {
	uint64_t key; /* request_blame_key */
	struct helpers *helpers;
	enum packed_state state;
	bool is_debug, is_gone, was_made, has_digest, is_lost;
	uint8_t digest[ELF_BLAKE2B_BYTES]; /* zeros: of anything */
	char base[NAME_BYTES];		   /* "": not known */
	char part[64];			   /* being made; "": none is */
	UT_hash_handle hh;
};

static void digest_done(void *ctx, const struct helpers_result *result);
static void pack_done(void *ctx, const struct helpers_result *result);

static const struct cache_rules rules = {"sym", {{".part", PART_OLD_SEC}}};

int helpers_symbols_start(struct helpers *h, const char *path, uint64_t bytes_max, struct why *why)
{
	struct symbols *s = &h->symbols;
	int directory, err;

	err = directory_open(path ? path : HELPERS_SYMBOLS_CACHE, &directory, why);
	if (err)
		return err;
	s->directory = fcntl(directory, F_DUPFD_CLOEXEC, 10);
	close(directory);
	if (s->directory < 0)
		return why_set(why, -errno, "fcntl: %s", strerror(errno));
	s->bytes_max = bytes_max ? bytes_max : HELPERS_SYMBOLS_CACHE_MAX;
	s->bytes = cache_directory_prune(s->directory, &rules, s->bytes_max);
	return 0;
}

void symbols_done(struct helpers *h)
{
	struct packed *p, *next;

	HASH_ITER (hh, h->symbols.files, p, next) {
		HASH_DEL(h->symbols.files, p);
		if (p->part[0])
			unlinkat(h->symbols.directory, p->part, 0);
		mem_free(MEM_HELPERS, p);
	}
	if (h->symbols.directory >= 0)
		close(h->symbols.directory);
}

/* ------------------------------------------------------------------ names in the directory */

static void hex(const uint8_t *id, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++)
		snprintf(out + 2 * i, 3, "%02x", id[i]);
}

static void base_set(struct packed *p, const struct request *r, const uint8_t *digest)
{
	size_t len = r->wire.build_id_len < ID_BYTES ? r->wire.build_id_len : ID_BYTES;

	hex(r->wire.build_id, len, p->base);
	p->base[2 * len] = '-';
	hex(digest, ID_BYTES, p->base + 2 * len + 1);
}

static void name_of(const struct packed *p, char out[NAME_BYTES + 32])
{
	snprintf(out, NAME_BYTES + 32, "%s%s", p->base, p->is_debug ? DEBUG_END : OWN_END);
}

static int packed_open(const struct packed *p)
{
	char name[NAME_BYTES + 32];
	int fd;

	name_of(p, name);
	fd = openat(p->helpers->symbols.directory, name,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Marks it as used, once in a recording: the reader knows its file by that time. */
static bool is_there(const struct packed *p)
{
	char name[NAME_BYTES + 32];
	int fd;

	name_of(p, name);
	fd = cache_directory_find(p->helpers->symbols.directory, name);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void packed_remove(const struct packed *p)
{
	char name[NAME_BYTES + 32];

	name_of(p, name);
	unlinkat(p->helpers->symbols.directory, name, 0);
}

/* Symbol files of one build-id. */
struct only {
	char prefix[2 * ID_BYTES + 2], base[NAME_BYTES];
	unsigned int count; /* not past two */
};

static int only_visit(void *ctx, const char *name)
{
	size_t len = strlen(name), end = strlen(OWN_END);
	struct only *only = ctx;

	if (strncmp(name, only->prefix, strlen(only->prefix)) != 0 || len <= end ||
	    len - end >= sizeof(only->base) || strcmp(name + len - end, OWN_END) != 0)
		return 0;
	snprintf(only->base, sizeof(only->base), "%.*s", (int)(len - end), name);
	return ++only->count > 1;
}

static void only_find(const struct helpers *h, const struct request *r, struct only *ret)
{
	size_t len = r->wire.build_id_len < ID_BYTES ? r->wire.build_id_len : ID_BYTES;

	memset(ret, 0, sizeof(*ret));
	hex(r->wire.build_id, len, ret->prefix);
	ret->prefix[2 * len] = '-';
	cache_directory_list(h->symbols.directory, only_visit, ret);
}

/* The binary is gone. True when there is just one symbol file of its build-id. */
static bool find_by_build_id(struct packed *p, const struct request *r)
{
	struct only only;

	only_find(p->helpers, r, &only);
	if (!r->wire.build_id_len || only.count != 1)
		return false;
	memcpy(p->base, only.base, sizeof(p->base));
	memset(p->digest, 0, sizeof(p->digest));
	p->is_gone = true;
	return is_there(p);
}

/* ------------------------------------------------------------------ requests */

static struct packed *packed_find(struct helpers *h, uint64_t key)
{
	struct packed *p;

	HASH_FIND(hh, h->symbols.files, &key, sizeof(key), p);
	return p;
}

static struct packed *packed_get(struct helpers *h, const struct request *r)
{
	uint64_t key = request_blame_key(r);
	struct packed *p = packed_find(h, key), *own;

	if (p)
		return p;
	p = mem_alloc(MEM_HELPERS, sizeof(*p));
	if (!p)
		return NULL;
	p->key = key;
	p->helpers = h;
	p->is_debug = wire_is_debug(r->wire.op);
	/* A debug file's is called after the program's, which was asked first. */
	own = p->is_debug ? packed_find(h, r->wire.key) : NULL;
	if (own && own->state == READY) {
		memcpy(p->base, own->base, sizeof(p->base));
		p->is_gone = own->is_gone;
	} else if (p->is_debug) {
		p->state = NONE;
	}
	HASH_ADD(hh, h->symbols.files, key, sizeof(p->key), p);
	if (p->is_lost) {
		mem_free(MEM_HELPERS, p);
		return NULL;
	}
	return p;
}

/* The request goes to the reader with the symbol file. */
static bool request_use(struct request *r, struct packed *p)
{
	int fd = packed_open(p);

	if (fd < 0)
		return false;
	r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 10);
	close(fd);
	if (r->fd < 0)
		return false;
	r->wire.op = r->plain_op == WIRE_INSPECT ? WIRE_PACKED_INFO : WIRE_PACKED_NAMES;
	memcpy(r->wire.digest, p->digest, sizeof(r->wire.digest));
	return true;
}

static void request_be_plain(struct request *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
	r->wire.op = r->plain_op;
	memset(r->wire.digest, 0, sizeof(r->wire.digest));
}

/* It was there, and is not any more: somebody else made room. */
static void packed_is_lost(struct packed *p)
{
	p->state = p->was_made || p->is_gone ? NONE : NEW;
}

void symbols_prepare(struct helpers *h, struct request *r)
{
	struct packed *p;

	r->plain_op = r->wire.op;
	if (h->symbols.directory < 0 || (r->wire.op != WIRE_NAMES && r->wire.op != WIRE_DEBUG))
		return;
	p = packed_get(h, r);
	if (!p)
		return;
	r->packed = p;
	if (p->state == READY && !request_use(r, p))
		packed_is_lost(p);
	if (p->state == NEW || p->state == BUSY)
		r->state = REQUEST_WAITING;
}

/* All that waited go on, with the symbol file or without. */
static void packed_settle(struct packed *p, enum packed_state state)
{
	struct helpers *h = p->helpers;
	struct request *next;

	p->state = state;
	for (struct request *r = h->waiting.first; r; r = next) {
		next = r->next;
		if (r->packed != p)
			continue;
		if (p->state == READY && !request_use(r, p))
			p->state = NONE;
		request_move(h, r, REQUEST_QUEUED, false);
	}
}

static struct request *waiting_one(struct packed *p)
{
	for (struct request *r = p->helpers->waiting.first; r; r = r->next) {
		if (r->packed == p)
			return r;
	}
	return NULL;
}

static void packed_ask(struct packed *p, const struct request *r)
{
	uint32_t op = p->is_debug ? WIRE_DEBUG_DIGEST : WIRE_PACK_DIGEST;

	p->state = BUSY;
	if (request_submit(p->helpers, request_clone(r, op), digest_done, p))
		packed_settle(p, NONE);
}

/* Has the reader fill a new file. */
static void packed_make(struct packed *p, const struct request *r)
{
	struct symbols *s = &p->helpers->symbols;
	uint32_t op = p->is_debug ? WIRE_DEBUG_PACK : WIRE_PACK;
	struct request *clone = r ? request_clone(r, op) : NULL;
	int fd;

	p->state = BUSY;
	p->was_made = true;
	if (!clone) {
		packed_settle(p, NONE);
		return;
	}
	snprintf(p->part, sizeof(p->part), "%d-%u.part", (int)getpid(), s->parts++);
	fd = openat(s->directory, p->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	clone->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
	if (fd >= 0)
		close(fd);
	/* Without a descriptor the reader says no. */
	if (request_submit(p->helpers, clone, pack_done, p)) {
		unlinkat(s->directory, p->part, 0);
		p->part[0] = 0;
		packed_settle(p, NONE);
	}
}

/* Without a symbol file that may be the right one, there is nothing to compare a digest with. */
void symbols_begin(struct helpers *h, struct request *r)
{
	struct packed *p = r->packed;
	struct only only = {.count = 0};

	if (p->state != NEW)
		return;
	if (!p->is_debug)
		only_find(h, r, &only);
	if (p->is_debug ? is_there(p) : only.count)
		packed_ask(p, r);
	else
		packed_make(p, r);
}

static void digest_set(struct packed *p, const struct request *r, const uint8_t *digest)
{
	memcpy(p->digest, digest, sizeof(p->digest));
	p->has_digest = true;
	if (!p->is_debug)
		base_set(p, r, p->digest);
}

/* Also when another file lies at its path now. */
static bool is_gone_by(int err)
{
	return err == -ESRCH || err == -ESTALE;
}

static void digest_done(void *ctx, const struct helpers_result *result)
{
	struct packed *p = ctx;
	struct request *r = waiting_one(p);
	bool is_gone;

	if (!r || result->err == -ECANCELED) {
		p->state = NEW;
		return;
	}
	is_gone = is_gone_by(result->err) || (p->is_debug && result->err == -ENOENT);
	if (!result->err) {
		digest_set(p, r, result->digest);
		if (is_there(p))
			packed_settle(p, READY);
		else
			packed_make(p, r);
		return;
	}
	if (is_gone && (p->is_debug ? is_there(p) : find_by_build_id(p, r))) {
		p->was_made = true; /* of what is gone, nothing can be made */
		packed_settle(p, READY);
	} else {
		packed_settle(p, NONE);
	}
}

static void pack_keep(struct packed *p)
{
	struct symbols *s = &p->helpers->symbols;
	char name[NAME_BYTES + 32];
	off_t bytes = 0;
	int fd;

	name_of(p, name);
	if (renameat(s->directory, p->part, s->directory, name)) {
		unlinkat(s->directory, p->part, 0);
		return;
	}
	fd = packed_open(p);
	if (fd >= 0) {
		bytes = lseek(fd, 0, SEEK_END);
		close(fd);
	}
	s->bytes += bytes > 0 ? (uint64_t)bytes : 0;
	if (s->bytes > s->bytes_max)
		s->bytes = cache_directory_prune(s->directory, &rules, s->bytes_max);
}

static void pack_done(void *ctx, const struct helpers_result *result)
{
	struct packed *p = ctx;
	struct request *r = waiting_one(p);
	bool is_good = r && !result->err;

	if (is_good && !p->has_digest)
		digest_set(p, r, result->digest);
	else if (is_good)
		is_good = !memcmp(result->digest, p->digest, sizeof(p->digest));
	if (is_good)
		pack_keep(p);
	else
		unlinkat(p->helpers->symbols.directory, p->part, 0);
	p->part[0] = 0;
	if (result->err)
		log_debug("no symbol file: %s", result->text);
	if (result->err != -ECANCELED)
		packed_settle(p, is_good ? READY : NONE);
}

/* What is known of a binary that is gone: the header of its symbol file has it. */
static bool divert_inspect(struct helpers *h, struct request *r)
{
	struct packed gone = {.helpers = h};

	r->was_diverted = true;
	if (!r->wire.build_id_len || !find_by_build_id(&gone, r) || !request_use(r, &gone))
		return false;
	if (request_again(h, r))
		return true;
	request_be_plain(r);
	return false;
}

bool symbols_divert(struct helpers *h, struct request *r, const struct helpers_result *result)
{
	struct packed *p = r->packed;
	int err = result->err;

	if (!err || err == -ECANCELED || h->is_stopping || h->symbols.directory < 0)
		return false;
	if (r->wire.op == WIRE_INSPECT && is_gone_by(err) && !r->was_diverted)
		return divert_inspect(h, r);
	if (r->wire.op == WIRE_PACKED_INFO) {
		request_be_plain(r);
		request_fail(h, r, -ESRCH, FLY_UNNAMED_FILE_GONE,
			     "the file and the process that mapped it are gone");
		return true;
	}
	if (r->wire.op != WIRE_PACKED_NAMES)
		return false;
	request_be_plain(r);
	r = request_again(h, r);
	if (!r)
		return false;
	if (p->state == READY && !p->was_made &&
	    (err == -EBADMSG || err == -EOPNOTSUPP || err == -ESTALE)) {
		packed_remove(p);
		request_move(h, r, REQUEST_WAITING, false);
		packed_make(p, r);
	} else if (p->state == READY) {
		p->state = NONE;
	}
	return true;
}
