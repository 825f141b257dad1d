/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base: what every part stands on. Errors that carry a reason, a log, accounted memory,
 * bounded buffers, interned strings, clocks, and the parsing of what users type.
 *
 * Nothing here knows of profiling. Hash tables are uthash (uthash-dev), with its allocator sent
 * through mem_alloc by the including file where the table belongs to a part.
 *
 * Names in this part start with their noun (why_, log_, mem_, buf_, strings_, clock_, directory_,
 * text_) rather than with base_: they are the words of the house, used in every file.
 */
#ifndef FLYBALL_BASE_H
#define FLYBALL_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* ------------------------------------------------------------------ why: errors with a reason
 *
 * Functions return 0 or a negative errno. At a border (files, ELF, /proc, kernel, config) the
 * last parameter is a nullable `struct why *`: the innermost function fills in the fact, callers
 * may prefix one clause. Parts never log an error they return; the agent or the CLI says it once.
 *
 * Meanings kept apart for outside bytes: -EBADMSG malformed, -ERANGE past our limit,
 * -EOPNOTSUPP well-formed but not handled, -ENOSPC over a budget.
 */
struct why {
	char text[400];
};

/* Sets the reason and returns err, so that `return why_set(why, -EINVAL, "...")` reads well. */
int why_set(struct why *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts one clause in front: "CLAUSE: TEXT". Does nothing on NULL or an empty reason. */
void why_prefix(struct why *why, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ------------------------------------------------------------------ log
 *
 * One line per message on stderr, "flyball: text". Only agent/ and cli/ log above debug.
 * Control characters in arguments are the caller's duty: pass foreign text through text_print.
 * Thread-safe (one write(2) per line).
 */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_set_name(const char *name); /* default "flyball"; must outlive the process */
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

/* ------------------------------------------------------------------ mem: accounted memory
 *
 * Every allocation names its part; live and peak bytes are kept per part (malloc_usable_size).
 * NULL on failure, never an exit. Counters are atomic. mem_fail_after arms the torture hook:
 * the n-th allocation from now fails, once (tests only; 0 disarms).
 */
enum mem_part {
	MEM_BASE,
	MEM_ELF,
	MEM_SYMBOL,
	MEM_PROFILE,
	MEM_HELPERS,
	MEM_PROCESS,
	MEM_KERNEL,
	MEM_AGENT,
	MEM_TABLES,
	MEM_STORE,
	MEM_CONFIG,
	MEM_EXPORT,
	MEM_HTTP,
	MEM_PARTS,
};
void *mem_alloc(enum mem_part part, size_t bytes);		 /* zeroed */
void *mem_array(enum mem_part part, size_t count, size_t bytes); /* zeroed; overflow is NULL */
void *mem_resize(enum mem_part part, void *p, size_t bytes);	 /* p untouched on NULL */
char *mem_copy_string(enum mem_part part, const char *s);
void mem_free(enum mem_part part, void *p); /* NULL is fine */
size_t mem_live_bytes(enum mem_part part);
size_t mem_peak_bytes(enum mem_part part);
const char *mem_part_name(enum mem_part part);
void mem_fail_after(unsigned long n);
/* Grows *items (of item_bytes each) so that it can hold want items; doubles, at most max.
 * 0, -ENOSPC when want > max, -ENOMEM. New items are not zeroed. */
int mem_grow(enum mem_part part, void **items, size_t *cap, size_t want, size_t max,
	     size_t item_bytes);

/* ------------------------------------------------------------------ buf: bounded byte buffer
 *
 * Caller's memory; data is heap, NUL-terminated beyond len. The first failure sticks in err
 * (-ENOSPC past max, -ENOMEM) and every later call is a no-op, so check once at the end.
 */
struct buf {
	char *data;
	size_t len, cap, max;
	int err;
	enum mem_part part;
};
void buf_init(struct buf *b, enum mem_part part, size_t max_bytes);
void buf_done(struct buf *b);
void buf_reset(struct buf *b);
void buf_add(struct buf *b, const void *data, size_t bytes);
void buf_add_str(struct buf *b, const char *s);
void buf_add_char(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ------------------------------------------------------------------ strings: interned text
 *
 * Ids are dense from 0; id 0 is always "". Strings are kept until strings_free; total bytes are
 * bounded. One owning thread.
 */
struct strings;
int strings_new(enum mem_part part, size_t max_bytes, struct strings **ret);
void strings_free(struct strings *s);
/* Interns len bytes (may hold NULs: they end the string). Negative: -ENOSPC, -ENOMEM. */
int64_t strings_add(struct strings *s, const char *text, size_t len);
int64_t strings_add_str(struct strings *s, const char *text);
const char *strings_get(const struct strings *s, uint32_t id); /* "" for an unknown id */
uint32_t strings_count(const struct strings *s);
size_t strings_bytes(const struct strings *s);

/* ------------------------------------------------------------------ clock */
uint64_t clock_monotonic_ns(void);
uint64_t clock_realtime_ns(void);

/* ------------------------------------------------------------------ directory: one of our own
 *
 * Makes it (0700), and its parents (0755), if need be. Refuses a directory of another user, or that
 * others may write to.
 */
int directory_open(const char *path, int *ret_directory, struct why *why);

/* ------------------------------------------------------------------ text: what users type and see
 */
/* "64KiB", "1MiB", "2GiB", "4096", "64K" (binary). -EINVAL malformed, -ERANGE overflow. */
int text_parse_bytes(const char *s, uint64_t *ret_bytes);
/* "10", "10s", "500ms", "2m", "1h", "7d". Bare numbers are seconds; fractions allowed. */
int text_parse_duration(const char *s, uint64_t *ret_ns);
/* Whole decimal number within [min, max]; nothing before or after. */
int text_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);
/* "1.0 MiB", "17 KiB": for people. Returns out. */
char *text_bytes(uint64_t bytes, char *out, size_t out_size);
/* Copies in to out as valid UTF-8 of at most out_size-1 bytes: bad bytes become U+FFFD, control
 * characters (C0, DEL, C1, bidi overrides) become '?'. For terminals and for protobuf strings.
 * Returns bytes written. Never fails; cuts at a character border. */
size_t text_print(const char *in, size_t in_len, char *out, size_t out_size);
bool text_is_utf8(const char *s, size_t len);

#endif
