// SPDX-License-Identifier: Apache-2.0
/* store: opening and closing, and what is in it. */
#include "store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define HOUR_NS	   (3600 * 1000000000ULL)
#define LOOK_PAGES 8192 /* a database of up to 32 MiB is looked through when it is opened */
#define ROOM_PAGES 48	/* that a new database needs at least */

static const char *const count_names[STORE_COUNTS] = {
	[STORE_APPENDED] = "appended",
	[STORE_EXPIRED_AGE] = "expired_age",
	[STORE_EXPIRED_QUOTA] = "expired_quota",
	[STORE_MERGED] = "merged",
	[STORE_MERGE_FAILED] = "merge_failed",
	[STORE_REFUSED_SIZE] = "refused_size",
	[STORE_REFUSED_SPACE] = "refused_space",
	[STORE_REFUSED_LOG] = "refused_log",
	[STORE_REFUSED_OTHER] = "refused_other",
	[STORE_DAMAGED] = "damaged",
	[STORE_SET_ASIDE] = "set_aside",
	[STORE_SALVAGED] = "salvaged",
	[STORE_LOST] = "lost",
	[STORE_ASIDE_REMOVED] = "aside_removed",
};

const char *store_count_name(enum store_count count)
{
	return count < STORE_COUNTS ? count_names[count] : "?";
}

char *store_symbols_path(const struct store *store, char *out, size_t out_size)
{
	snprintf(out, out_size, "%s/symbols", store->directory);
	return out;
}

static int name_holder(const struct store *store, struct why *why)
{
	char text[32] = "";
	ssize_t n = pread(store->lock_fd, text, sizeof(text) - 1, 0);
	uint64_t pid;

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (text_parse_u64(text, 1, INT32_MAX, &pid))
		return why_set(why, -EAGAIN, "another process writes the store in %s",
			       store->directory);
	return why_set(why, -EAGAIN, "process %llu writes the store in %s", (unsigned long long)pid,
		       store->directory);
}

static int take_lock(struct store *store, struct why *why)
{
	store->lock_fd = openat(store->directory_fd, "lock",
				O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (store->lock_fd < 0)
		return why_set(why, -errno, "cannot open %s/lock: %s", store->directory,
			       strerror(errno));
	if (flock(store->lock_fd, LOCK_EX | LOCK_NB)) {
		if (errno == EWOULDBLOCK)
			return name_holder(store, why);
		return why_set(why, -errno, "cannot lock %s/lock: %s", store->directory,
			       strerror(errno));
	}
	/* On a full disk the lock holds all the same, without a name. */
	if (!ftruncate(store->lock_fd, 0) && dprintf(store->lock_fd, "%d\n", getpid()) < 0)
		log_debug("%s/lock does not say who holds it", store->directory);
	return 0;
}

/* SQLite gives its files the mode of the database. Before any connection: see store_internal.h. */
static int make_file(const struct store *store, struct why *why)
{
	int fd = openat(store->directory_fd, "store.db", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
			0600);

	if (fd < 0)
		return why_set(why, -errno, "cannot make %s: %s", store->path, strerror(errno));
	close(fd);
	return 0;
}

/* Damage is found here while it is cheap to look; of a larger database block by block, with each
 * append (scrub). */
static int look_through(struct store *store, struct why *why)
{
	sqlite3_stmt *statement = NULL;
	uint64_t pages = 0;
	int err = store_statement_number(store, STORE_SQL_PAGES, &pages, why);

	if (err || pages > LOOK_PAGES)
		return err;
	if (sqlite3_prepare_v2(store->sql, "PRAGMA quick_check(1)", -1, &statement, NULL) ||
	    sqlite3_step(statement) != SQLITE_ROW) {
		err = store_sql_fail(store->sql, "cannot look through the database", why);
	} else {
		const char *found = (const char *)sqlite3_column_text(statement, 0);

		if (!found || strcmp(found, "ok"))
			err = why_set(why, -EBADMSG, "the database is damaged: %s",
				      found ? found : "?");
	}
	sqlite3_finalize(statement);
	return err;
}

/* For readers, who are told no quota. */
static int write_quota(struct store *store, struct why *why)
{
	sqlite3_stmt *statement;
	uint64_t before = 0;
	int err = store_statement_number(store, STORE_SQL_QUOTA, &before, why);

	if (err || before == store->options.quota_bytes)
		return err;
	err = store_begin(store, STORE_EXTRA_PAGES, why);
	if (err)
		return err;
	statement = store_statement(store, STORE_SQL_SETTING_PUT, why);
	if (!statement) {
		err = store_sql_fail(store->sql, "cannot write the quota", why);
	} else {
		sqlite3_bind_text(statement, 1, "quota_bytes", -1, SQLITE_STATIC);
		store_bind(statement, 2, store->options.quota_bytes);
		err = store_statement_run(store, statement, "cannot write the quota", why);
	}
	if (!err)
		return store_commit(store, why);
	store_rollback(store);
	return err;
}

void store_database_close(struct store *store)
{
	store_statements_done(store);
	sqlite3_close(store->sql);
	store->sql = NULL;
}

int store_database_open(struct store *store, struct why *why)
{
	int err = make_file(store, why);

	store_room_used(store, &store->aside_bytes);
	do
		store_room_plan(store->options.quota_bytes, store->aside_bytes, &store->room);
	while (store->room.pages < ROOM_PAGES && store_aside_remove(store));
	if (!err)
		err = store_sql_open(store->path, SQLITE_OPEN_READWRITE, &store->sql, why);
	if (!err)
		err = store_schema_ready(store->sql, why);
	if (!err)
		err = look_through(store, why);
	if (!err)
		err = store_room_shrink(store, why);
	if (!err)
		err = write_quota(store, why);
	if (err)
		store_database_close(store);
	return err;
}

static int open_writer(struct store *store, struct why *why)
{
	int err = take_lock(store, why);

	if (!err)
		err = store_database_open(store, why);
	if (err == -EBADMSG)
		err = store_set_aside(store, why);
	return err;
}

static int open_reader(struct store *store, struct why *why)
{
	int err;

	if (faccessat(store->directory_fd, "store.db", F_OK, 0) && errno == ENOENT)
		err = -ENOENT;
	else
		err = store_sql_reader(store, &store->sql, why);
	if (err == -ENOENT || err == -ENODATA)
		return why_set(why, -ENOENT, "there is no store in %s", store->directory);
	return err;
}

static int open_directory(struct store *store, struct why *why)
{
	const char *path = store->directory;

	if (path[0] != '/')
		return why_set(why, -EINVAL, "%s: give the directory's absolute path", path);
	if (!store->options.read_only)
		return directory_open(path, &store->directory_fd, why);
	store->directory_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->directory_fd < 0)
		return why_set(why, -errno, "cannot open %s: %s", path, strerror(errno));
	return 0;
}

static int take_options(struct store *store, const struct store_options *options, struct why *why)
{
	struct store_options *o = &store->options;

	*o = *options;
	if (!o->quota_bytes)
		o->quota_bytes = STORE_QUOTA_DEFAULT;
	if (o->quota_bytes < STORE_QUOTA_MIN)
		return why_set(why, -EINVAL, "a store needs at least 1 MiB");
	if (!o->max_age_ns)
		o->max_age_ns = STORE_AGE_DEFAULT_NS;
	if (!o->minutes_after_ns)
		o->minutes_after_ns = HOUR_NS;
	if (!o->hours_after_ns)
		o->hours_after_ns = 24 * HOUR_NS;
	store->opened_realtime_ns =
		o->clock.realtime_ns ? o->clock.realtime_ns() : clock_realtime_ns();
	store->opened_monotonic_ns =
		o->clock.monotonic_ns ? o->clock.monotonic_ns() : clock_monotonic_ns();
	return 0;
}

int store_open(const char *directory, const struct store_options *options, struct store **ret,
	       struct why *why)
{
	struct store *store;
	int err;

	if (strlen(directory) >= sizeof(store->directory))
		return why_set(why, -ENAMETOOLONG, "the path of a store is too long");
	store = mem_alloc(MEM_STORE, sizeof(*store));
	if (!store)
		return why_set(why, -ENOMEM, "no memory for a store");
	store->directory_fd = store->lock_fd = -1;
	buf_init(&store->packed, MEM_STORE, STORE_PACKED_MAX);
	buf_init(&store->raw, MEM_STORE, STORE_BLOCK_BYTES_MAX);
	buf_init(&store->terms, MEM_STORE, (size_t)STORE_TERMS_MAX * STORE_GROUP_MAX * 5);
	snprintf(store->directory, sizeof(store->directory), "%s", directory);
	snprintf(store->path, sizeof(store->path), "%s/store.db", directory);
	store->pack = ZSTD_createCCtx();
	store->unpack = ZSTD_createDCtx();
	if (!store->pack || !store->unpack)
		err = why_set(why, -ENOMEM, "no memory for a store");
	else
		err = take_options(store, options, why);
	if (!err)
		err = open_directory(store, why);
	if (!err) {
		err = options->read_only ? open_reader(store, why) : open_writer(store, why);
		why_prefix(err && err != -EAGAIN && err != -ENOENT ? why : NULL, "the store in %s",
			   directory);
	}
	if (err) {
		store_close(store);
		return err;
	}
	*ret = store;
	return 0;
}

int store_counts_write(struct store *store, struct why *why)
{
	for (size_t i = 0; i < STORE_COUNTS; i++) {
		sqlite3_stmt *statement;
		int err;

		if (!store->pending[i])
			continue;
		statement = store_statement(store, STORE_SQL_COUNT_ADD, why);
		if (!statement)
			return store_sql_fail(store->sql, "cannot write counts", why);
		sqlite3_bind_text(statement, 1, count_names[i], -1, SQLITE_STATIC);
		store_bind(statement, 2, store->pending[i]);
		err = store_statement_run(store, statement, "cannot write counts", why);
		if (err)
			return err;
	}
	return 0;
}

static void write_last_counts(struct store *store)
{
	bool has_some = false;

	for (size_t i = 0; i < STORE_COUNTS; i++)
		has_some = has_some || store->pending[i];
	if (!has_some || store_begin(store, STORE_EXTRA_PAGES, NULL))
		return;
	if (store_counts_write(store, NULL))
		store_rollback(store);
	else
		store_commit(store, NULL);
}

void store_close(struct store *store)
{
	if (!store)
		return;
	if (store->sql && !store->options.read_only)
		write_last_counts(store);
	store_database_close(store);
	ZSTD_freeCCtx(store->pack);
	ZSTD_freeDCtx(store->unpack);
	buf_done(&store->packed);
	buf_done(&store->raw);
	buf_done(&store->terms);
	if (store->lock_fd >= 0)
		close(store->lock_fd);
	if (store->directory_fd >= 0)
		close(store->directory_fd);
	mem_free(MEM_STORE, store);
}

static void add_level(sqlite3_stmt *statement, struct store_stats *s)
{
	uint64_t v[12];

	for (int i = 0; i < 12; i++)
		v[i] = (uint64_t)sqlite3_column_int64(statement, i);
	s->blocks[v[0] < STORE_LEVELS ? v[0] : STORE_HOUR] += v[1];
	s->windows += v[2];
	s->raw_bytes += v[3];
	s->stored_bytes += v[4];
	s->start_ns = !s->start_ns || v[5] < s->start_ns ? v[5] : s->start_ns;
	s->end_ns = v[6] > s->end_ns ? v[6] : s->end_ns;
	s->first_id = !s->first_id || v[7] < s->first_id ? v[7] : s->first_id;
	s->ledger.taken += v[8];
	s->ledger.taken_ns += v[9];
	s->ledger.delivered += v[10];
	s->ledger.delivered_ns += v[11];
}

static void add_count(sqlite3_stmt *statement, struct store_stats *s)
{
	const char *name = (const char *)sqlite3_column_text(statement, 0);
	uint64_t value = (uint64_t)sqlite3_column_int64(statement, 1);

	if (name && !strcmp(name, "quota_bytes"))
		s->quota_bytes = value;
	for (size_t i = 0; name && i < STORE_COUNTS; i++) {
		if (!strcmp(name, count_names[i]))
			s->counts[i] += value;
	}
}

static int read_rows(struct store *store, enum store_sql which,
		     void (*add)(sqlite3_stmt *, struct store_stats *), struct store_stats *s,
		     struct why *why)
{
	sqlite3_stmt *statement = store_statement(store, which, why);
	int code, err = 0;

	if (!statement)
		return store_sql_fail(store->sql, "cannot read what is in the store", why);
	while ((code = sqlite3_step(statement)) == SQLITE_ROW)
		add(statement, s);
	if (code != SQLITE_DONE)
		err = store_sql_fail(store->sql, "cannot read what is in the store", why);
	sqlite3_reset(statement);
	return err;
}

int store_stats_get(struct store *store, struct store_stats *ret, struct why *why)
{
	struct store_stats s = {0};
	int err = read_rows(store, STORE_SQL_SUMS, add_level, &s, why);

	if (!err)
		err = read_rows(store, STORE_SQL_COUNTS, add_count, &s, why);
	if (!err)
		err = store_statement_number(store, STORE_SQL_LAST_ID, &s.last_id, why);
	if (err)
		return err;
	for (size_t i = 0; i < STORE_COUNTS; i++)
		s.counts[i] += store->pending[i];
	s.disk_bytes = store_room_used(store, &s.aside_bytes);
	*ret = s;
	return 0;
}
