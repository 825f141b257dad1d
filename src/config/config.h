/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config: the agent's configuration. YAML, environment variables and flags in; one struct out, in
 * which each value knows where it came from. Makes no system call: the caller reads files and says
 * what was found.
 *
 * config_keys.c has the one table of keys. Parser, printer, documentation and environment variables
 * are made from it, so a new key is a line there and a field below.
 *
 *   config_new → config_read (file) → config_read_environment → config_set (flags) → config_check
 *
 * Later ones go over earlier ones. Everything that is wrong is found at once: each step adds to one
 * report, and none stops at the first. A struct config belongs to one thread.
 */
#ifndef FLYBALL_CONFIG_H
#define FLYBALL_CONFIG_H

#include "base/base.h"

#define CONFIG_TEXT_MAX_BYTES (256 << 10) /* of a file */
#define CONFIG_KEYS_MAX	      80
#define CONFIG_TARGET_KEYS    11
#define CONFIG_TARGETS_MAX    16
#define CONFIG_ITEMS_MAX      256 /* of one list */
#define CONFIG_FINDINGS_MAX   100
#define CONFIG_HTTP_SOCKET    "/run/flyball/flyball.sock"
#define CONFIG_NAME_MAX	      96 /* of a key or a variable, with its NUL */

/* ---------------------------------------------------------------- values */
/* In the order of the values in config_keys.c. */
enum config_unwind { CONFIG_UNWIND_DWARF, CONFIG_UNWIND_FRAME_POINTERS };
enum config_export_kind {
	CONFIG_EXPORT_OTLP_GRPC,
	CONFIG_EXPORT_OTLP_HTTP,
	CONFIG_EXPORT_PYROSCOPE,
	CONFIG_EXPORT_PARCA
};
enum config_compression {
	CONFIG_COMPRESSION_NONE,
	CONFIG_COMPRESSION_GZIP,
	CONFIG_COMPRESSION_ZSTD
};
enum config_log_format { CONFIG_LOG_LOGFMT, CONFIG_LOG_JSON };

struct config_list {
	const char **items; /* of a headers key: "Name: value" */
	uint32_t count;
};

/* Where a value came from. Lines and columns count from 1. */
enum config_source { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_FLAG };
struct config_place {
	enum config_source source;
	uint32_t line, column;
	const char *name; /* of the variable or the flag; lives as long as the config */
};

struct config_target {
	const char *name;
	uint32_t kind;
	const char *endpoint;
	struct config_list headers;
	uint32_t compression;
	uint64_t timeout_ns;
	bool has_symbols;
	uint64_t max_request_bytes;
	const char *ca_file, *cert_file, *key_file;
	struct config_place places[CONFIG_TARGET_KEYS];
	struct config_place place; /* of the target itself */
};

struct config_policy {
	struct config_list cgroups, containers, uids, comms, executables;
};

struct config {
	uint32_t sampling_hz;
	uint32_t unwind_strategy; /* enum config_unwind */
	uint32_t max_stack_depth;
	uint32_t ring_buffer_kb;
	bool has_throttling;
	uint32_t cpu_budget_ppm;
	struct {
		uint32_t stack_map_type, unwind_format, eviction_policy;
		uint32_t max_stack_entries;
		bool has_dwarf_in_kernel;
		uint64_t table_bytes; /* at most */
	} ebpf;
	struct {
		uint32_t budget_ppm; /* of RAM; 0: min(2.5 %, 64 MiB) */
		uint32_t enforcement;
		bool drops_on_pressure;
	} memory;
	uint64_t memory_limit_bytes, memory_request_bytes;
	uint64_t window_ns;
	struct {
		const char *directory;
		uint64_t max_bytes, max_age_ns;
	} store;
	/* Excluded goes before included; nothing included is everything. */
	struct config_policy include, exclude;
	struct config_list service_name_variables;
	struct {
		const char *socket, *address; /* "": off */
		const char *token_file, *cert_file, *key_file;
	} http;
	struct config_target targets[CONFIG_TARGETS_MAX];
	uint32_t target_count;
	struct {
		struct config_list urls; /* none: the network is not asked */
		const char *cache_directory;
	} debuginfod;
	struct {
		uint32_t format;
		uint32_t level; /* enum log_level */
	} log;

	struct config_place places[CONFIG_KEYS_MAX];
	struct strings *strings; /* owns all text */
};

/* ---------------------------------------------------------------- what was found */
struct config_finding {
	bool is_note;		   /* nothing is wrong: what a key of the file maps to here */
	struct config_place place; /* .source CONFIG_DEFAULT: the file as a whole */
	char key[CONFIG_NAME_MAX]; /* "": the text itself */
	const char *directive;	   /* "MEM-1", or "" where only the form is wrong */
	char problem[256], fix[256];
};
struct config_report {
	size_t count, error_count;
	bool is_full; /* there may be more: reading stopped */
	struct config_finding findings[CONFIG_FINDINGS_MAX + 1]; /* the last one is scratch */
};
/* Findings in the order of the text, those of other sources behind. */
void config_report_sort(struct config_report *report);

/* ---------------------------------------------------------------- life */
/* All defaults. -ENOMEM. */
int config_new(struct config **ret);
void config_free(struct config *config); /* NULL is fine */
/* Each returns 0 or -ENOMEM; what is wrong with the text goes into the report, and the value before
 * stays. config_read again: as if texts stood one behind the other, but for repeated keys. */
int config_read(struct config *config, const char *text, size_t len, struct config_report *report);
/* variables: as environ. FLYBALL_ variables that are no key are none of our business, unless one
 * looks like a mistyped key: that is a note. */
int config_read_environment(struct config *config, char *const *variables,
			    struct config_report *report);
int config_set(struct config *config, const char *key, const char *value, const char *flag,
	       struct config_report *report);
/* What no key says alone. -EINVAL when the report has an error, of this step or an earlier one. */
int config_check(const struct config *config, struct config_report *report);

/* ---------------------------------------------------------------- keys */
struct config_key;
/* In the order of the documentation, NULL past the end. Keys of targets follow "export.targets",
 * and are "export.targets[].kind". */
const struct config_key *config_key_get(size_t i);
const char *config_key_path(const struct config_key *key);
bool config_key_is_of_target(const struct config_key *key);
bool config_key_is_targets(const struct config_key *key);
bool config_key_is_live(const struct config_key *key);	   /* applied without a restart */
const char *config_key_note(const struct config_key *key); /* NULL, or what it maps to here */
/* FLYBALL_…; false where there is none: targets, their keys. */
bool config_key_variable(const struct config_key *key, char out[CONFIG_NAME_MAX]);
/* target: of the keys of targets, else ignored. */
struct config_place config_place_of(const struct config *config, const struct config_key *key,
				    uint32_t target);
/* The value as YAML, to buf. Values of headers are not shown. Adds nothing for a key without value
 * (only kernelMemoryGuard.maxKernelBudgetPercentOfRam can be that, and targets). */
void config_value_print(const struct config *config, const struct config_key *key, uint32_t target,
			struct buf *out);
/* docs/configuration.md. */
void config_keys_print(struct buf *out);

/* ---------------------------------------------------------------- a new one beside the old */
/* The keys whose values differ, at most max of them; returns how many there are. Targets count as
 * one. Whether a change needs a restart says config_key_is_live. */
size_t config_changes(const struct config *old, const struct config *new,
		      const struct config_key **ret_keys, size_t max);

#endif
