// SPDX-License-Identifier: Apache-2.0
/*
 * config_keys: the one table of keys, and what is made of it without any value: names of variables,
 * suggestions, docs/configuration.md.
 *
 * The first keys bear names that other profilers' configurations have, and keep them; where flyball
 * does otherwise, `note` says what they map to. Accepted choices come before refused ones, in the
 * order of their enum in config.h.
 */
#include "config_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#define AT(field) offsetof(struct config, field)
#define OF(field) offsetof(struct config_target, field)
#define KIB	  1024ULL
#define MIB	  (1024 * KIB)
#define GIB	  (1024 * MIB)
#define TIB	  (1024 * GIB)
#define SECOND	  1000000000ULL
#define DAY	  (86400 * SECOND)

static const struct config_choice unwinders[] = {
	{"dwarf", NULL,
	 "by compact tables, which user space makes from each binary's call frame information"},
	{"framePointers", NULL, "by frame pointers alone"},
	{0},
};
static const struct config_choice stack_maps[] = {
	{"BPF_MAP_TYPE_LRU_HASH", NULL, "does not grow"},
	{"BPF_MAP_TYPE_ARRAY", NULL, "does not grow"},
	{"BPF_MAP_TYPE_HASH", "MEM-2", "it grows"},
	{"BPF_MAP_TYPE_PERCPU_HASH", "MEM-2", "it grows"},
	{"BPF_MAP_TYPE_HASH_OF_MAPS", "MEM-2", "it grows"},
	{"BPF_MAP_TYPE_LPM_TRIE", "MEM-2", "it grows"},
	{0},
};
static const struct config_choice formats[] = {
	{"SFRAME_COMPACT", NULL, "rows that are made and checked in user space"},
	{"DWARF", "MEM-5", "the kernel would parse it raw"},
	{"EH_FRAME", "MEM-5", "the kernel would parse it raw"},
	{"DEBUG_FRAME", "MEM-5", "the kernel would parse it raw"},
	{0},
};
static const struct config_choice evictions[] = {
	{"LRU_ON_CAPACITY_LIMIT", NULL, "what served the fewest samples lately goes first"},
	{"NONE", "MEM-4", "what ended would stay"},
	{"CLEAR_ALL", "MEM-4", "what is in use would go"},
	{0},
};
static const struct config_choice enforcements[] = {
	{"STRICT", NULL, "sampling stops rather than exceed the budget"},
	{"PERMISSIVE", "MEM-6", "the budget would not hold"},
	{"DISABLED", "MEM-6", "the budget would not hold"},
	{"NONE", "MEM-6", "the budget would not hold"},
	{0},
};
static const struct config_choice kinds[] = {
	{"otlp-grpc", NULL, "OpenTelemetry over gRPC"},
	{"otlp-http", NULL, "OpenTelemetry over HTTP, protobuf"},
	{"pyroscope", NULL, "pprof to Pyroscope"},
	{"parca", NULL, "pprof to Parca"},
	{0},
};
static const struct config_choice compressions[] = {
	{"none", NULL, "as it is"},
	{"gzip", NULL, "understood everywhere"},
	{"zstd", NULL, "cheaper, where the other side knows it"},
	{0},
};
static const struct config_choice log_formats[] = {
	{"logfmt", NULL, "key=value"},
	{"json", NULL, "an object per line"},
	{0},
};
/* In the order of enum log_level. */
static const struct config_choice log_levels[] = {
	{"error", NULL, "what failed"},
	{"warn", NULL, "and what is given up"},
	{"info", NULL, "and what changes"},
	{"debug", NULL, "and why"},
	{0},
};

static const struct config_key keys[] = {
	{.path = "samplingFrequencyHz",
	 .type = CONFIG_COUNT,
	 .at = AT(sampling_hz),
	 .normal = "19",
	 .min = 1,
	 .max = 10000,
	 .unit = "Hz",
	 .text = "Samples per second and CPU that are wanted. The governor goes below it, never "
		 "above."},
	{.path = "unwindStrategy",
	 .type = CONFIG_CHOICE,
	 .at = AT(unwind_strategy),
	 .normal = "dwarf",
	 .choices = unwinders,
	 .is_fixed = true,
	 .text = "How user stacks are walked."},
	{.path = "maxStackDepth",
	 .type = CONFIG_COUNT,
	 .at = AT(max_stack_depth),
	 .normal = "64",
	 .min = 1,
	 .max = 1024,
	 .unit = "frames",
	 .text = "Frames of a user stack that are kept. The governor goes down to 32."},
	{.path = "ringBufferSizeKb",
	 .type = CONFIG_COUNT,
	 .at = AT(ring_buffer_kb),
	 .normal = "1024",
	 .min = 64,
	 .max = 65536,
	 .unit = "KiB",
	 .is_power_of_two = true,
	 .directive = "MEM-1",
	 .is_fixed = true,
	 .text = "The ring between kernel and user space; part of the kernel memory budget."},
	{.path = "dynamicThrottlingEnabled",
	 .type = CONFIG_BOOL,
	 .at = AT(has_throttling),
	 .normal = "true",
	 .text = "The tiers of CPU-3: less is sampled on a busy node. `false` is accepted only "
		 "beside at most 5 Hz, frame pointers and 32 frames, which no tier goes below."},
	{.path = "cpuBudgetPercent",
	 .type = CONFIG_PERCENT,
	 .at = AT(cpu_budget_ppm),
	 .normal = "1.5",
	 .min = 1,
	 .max = 50000,
	 .directive = "CPU-1",
	 .text = "Of the node's CPU, all that flyball may cost: processes, BPF programs, "
		 "interrupts."},
	{.path = "window",
	 .type = CONFIG_DURATION,
	 .at = AT(window_ns),
	 .normal = "10s",
	 .min = SECOND,
	 .max = 300 * SECOND,
	 .text = "Length of the windows that are closed, stored and sent, each with its ledger."},

	{.path = "ebpf.stackMapType",
	 .type = CONFIG_CHOICE,
	 .at = AT(ebpf.stack_map_type),
	 .normal = "BPF_MAP_TYPE_LRU_HASH",
	 .choices = stack_maps,
	 .is_fixed = true,
	 .text = "The kind of map that may hold stacks.",
	 .note = "no kernel map holds stacks here: each travels whole in its record"},
	{.path = "ebpf.maxStackEntries",
	 .type = CONFIG_COUNT,
	 .at = AT(ebpf.max_stack_entries),
	 .normal = "32768",
	 .min = 1,
	 .max = 1 << 24,
	 .unit = "stacks",
	 .directive = "MEM-1",
	 .is_fixed = true,
	 .text = "The most stacks that a kernel map may hold.",
	 .note = "no kernel map holds stacks here, so there are always fewer"},
	{.path = "ebpf.unwindFormat",
	 .type = CONFIG_CHOICE,
	 .at = AT(ebpf.unwind_format),
	 .normal = "SFRAME_COMPACT",
	 .choices = formats,
	 .is_fixed = true,
	 .text = "What the kernel side reads to walk a stack.",
	 .note = "it means flyball's own compact tables, which say what SFrame says"},
	{.path = "ebpf.dwarfParsingInKernel",
	 .type = CONFIG_BOOL,
	 .at = AT(ebpf.has_dwarf_in_kernel),
	 .normal = "false",
	 .directive = "MEM-5",
	 .breaks = "true",
	 .is_fixed = true,
	 .text = "Whether BPF programs parse DWARF. They never do."},
	{.path = "ebpf.unwindTableAllocationBytes",
	 .type = CONFIG_BYTES,
	 .at = AT(ebpf.table_bytes),
	 .normal = "8Mi",
	 .min = 2 * MIB,
	 .max = 64 * GIB,
	 .directive = "MEM-1",
	 .is_fixed = true,
	 .text = "The most that unwind tables take. They get the smaller of it and what the kernel "
		 "memory budget leaves beside all other maps, in steps of 2Mi."},
	{.path = "ebpf.evictionPolicy",
	 .type = CONFIG_CHOICE,
	 .at = AT(ebpf.eviction_policy),
	 .normal = "LRU_ON_CAPACITY_LIMIT",
	 .choices = evictions,
	 .is_fixed = true,
	 .text = "Which table goes when there is no room.",
	 .note = "it is weighted: by samples served per byte, not by the time of use alone"},

	{.path = "kernelMemoryGuard.maxKernelBudgetPercentOfRam",
	 .type = CONFIG_PERCENT,
	 .at = AT(memory.budget_ppm),
	 .min = 1,
	 .max = 50000,
	 .directive = "MEM-1",
	 .is_fixed = true,
	 .text = "All kernel memory, of the node's RAM. Without it: 2.5, and at most 64Mi."},
	{.path = "kernelMemoryGuard.bpfMemlockEnforcement",
	 .type = CONFIG_CHOICE,
	 .at = AT(memory.enforcement),
	 .normal = "STRICT",
	 .choices = enforcements,
	 .is_fixed = true,
	 .text = "What happens when kernel memory is measured above its budget."},
	{.path = "kernelMemoryGuard.dropSamplesOnMemoryPressure",
	 .type = CONFIG_BOOL,
	 .at = AT(memory.drops_on_pressure),
	 .normal = "true",
	 .directive = "MEM-6",
	 .breaks = "false",
	 .text = "Under memory pressure tables shrink, then samples are dropped and counted as "
		 "`memory_pressure`."},

	{.path = "resources.limits.memory",
	 .type = CONFIG_BYTES,
	 .at = AT(memory_limit_bytes),
	 .normal = "1Gi",
	 .min = 32 * MIB,
	 .max = TIB,
	 .text = "Memory of all processes of flyball: caches shrink first, then intake pauses, "
		 "counted."},
	{.path = "resources.requests.memory",
	 .type = CONFIG_BYTES,
	 .at = AT(memory_request_bytes),
	 .normal = "512Mi",
	 .min = 1,
	 .max = TIB,
	 .text = "What a deployment sets aside.",
	 .note = "it is read so that one file serves both; flyball itself asks for nothing ahead"},

	{.path = "store.directory",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = AT(store.directory),
	 .normal = "/var/lib/flyball",
	 .is_fixed = true,
	 .text = "Where profiles and symbol files are kept (flag `--store`)."},
	{.path = "store.maxBytes",
	 .type = CONFIG_BYTES,
	 .at = AT(store.max_bytes),
	 .normal = "1Gi",
	 .min = MIB,
	 .max = 64 * TIB,
	 .text = "What the store may take of the disk. The oldest goes first."},
	{.path = "store.maxAge",
	 .type = CONFIG_DURATION,
	 .at = AT(store.max_age_ns),
	 .normal = "7d",
	 .min = 60 * SECOND,
	 .max = 3650 * DAY,
	 .text = "What is older goes."},

#define POLICY(side, word)                                                                         \
	{.path = "policy." #side ".cgroups",                                                       \
	 .type = CONFIG_LIST,                                                                      \
	 .form = CONFIG_CGROUP,                                                                    \
	 .at = AT(side) + offsetof(struct config_policy, cgroups),                                 \
	 .normal = "",                                                                             \
	 .text = word " what runs in these control groups, and below them."},                      \
		{.path = "policy." #side ".containers",                                            \
		 .type = CONFIG_LIST,                                                              \
		 .form = CONFIG_CONTAINER,                                                         \
		 .at = AT(side) + offsetof(struct config_policy, containers),                      \
		 .normal = "",                                                                     \
		 .text = word " these containers."},                                               \
		{.path = "policy." #side ".uids",                                                  \
		 .type = CONFIG_LIST,                                                              \
		 .form = CONFIG_UID,                                                               \
		 .at = AT(side) + offsetof(struct config_policy, uids),                            \
		 .normal = "",                                                                     \
		 .text = word " processes of these users."},                                       \
		{.path = "policy." #side ".comms",                                                 \
		 .type = CONFIG_LIST,                                                              \
		 .form = CONFIG_COMM,                                                              \
		 .at = AT(side) + offsetof(struct config_policy, comms),                           \
		 .normal = "",                                                                     \
		 .text = word " threads of these names."},                                         \
		{.path = "policy." #side ".executables",                                           \
		 .type = CONFIG_LIST,                                                              \
		 .form = CONFIG_PATH,                                                              \
		 .at = AT(side) + offsetof(struct config_policy, executables),                     \
		 .normal = "",                                                                     \
		 .text = word " processes that run these programs."}
	POLICY(include, "Samples only"),
	POLICY(exclude, "Never samples"),

	{.path = "identity.serviceNameVariables",
	 .type = CONFIG_LIST,
	 .form = CONFIG_VARIABLE,
	 .at = AT(service_name_variables),
	 .normal = "OTEL_SERVICE_NAME",
	 .text = "Environment variables of a process that may name its service, the first that is "
		 "set; else its executable does. No other variable is read."},

	{.path = "http.socket",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_SOCKET,
	 .at = AT(http.socket),
	 .normal = CONFIG_HTTP_SOCKET,
	 .is_fixed = true,
	 .text = "The socket that serves everything, mode 0660. `\"\"`: none."},
	{.path = "http.address",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_ADDRESS,
	 .at = AT(http.address),
	 .normal = "127.0.0.1:7777",
	 .is_fixed = true,
	 .text = "Where TCP is served. `/metrics`, `/healthz` and `/readyz` need no token there, "
		 "all else does. Anything but loopback needs `http.tls` and `http.tokenFile`. "
		 "`\"\"`: nowhere."},
	{.path = "http.tokenFile",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = AT(http.token_file),
	 .normal = "",
	 .is_fixed = true,
	 .text = "A file, mode 0600, with the token that TCP asks for."},
	{.path = "http.tls.certFile",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = AT(http.cert_file),
	 .normal = "",
	 .is_fixed = true,
	 .text = "Certificate, PEM."},
	{.path = "http.tls.keyFile",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = AT(http.key_file),
	 .normal = "",
	 .is_fixed = true,
	 .text = "Its private key, PEM."},

	{.path = "export.targets",
	 .type = CONFIG_TARGETS,
	 .text = "Where windows are sent; a list of what follows, at most 16."},
	{.path = CONFIG_TARGET_PREFIX "name",
	 .type = CONFIG_TEXT,
	 .at = OF(name),
	 .normal = "",
	 .text = "In messages and metrics; without it, the endpoint."},
	{.path = CONFIG_TARGET_PREFIX "kind",
	 .type = CONFIG_CHOICE,
	 .at = OF(kind),
	 .normal = "otlp-grpc",
	 .choices = kinds,
	 .is_required = true,
	 .text = "What the other side speaks. Must be given."},
	{.path = CONFIG_TARGET_PREFIX "endpoint",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_URL,
	 .at = OF(endpoint),
	 .normal = "",
	 .is_required = true,
	 .text = "Where it listens. A path is kept as it is. Must be given."},
	{.path = CONFIG_TARGET_PREFIX "headers",
	 .type = CONFIG_HEADERS,
	 .at = OF(headers),
	 .normal = "",
	 .text = "Sent with each request. Values are never shown."},
	{.path = CONFIG_TARGET_PREFIX "compression",
	 .type = CONFIG_CHOICE,
	 .at = OF(compression),
	 .normal = "gzip",
	 .choices = compressions,
	 .text = "Of the request."},
	{.path = CONFIG_TARGET_PREFIX "timeout",
	 .type = CONFIG_DURATION,
	 .at = OF(timeout_ns),
	 .normal = "10s",
	 .min = SECOND / 10,
	 .max = 600 * SECOND,
	 .text = "For one request."},
	{.path = CONFIG_TARGET_PREFIX "symbols",
	 .type = CONFIG_BOOL,
	 .at = OF(has_symbols),
	 .normal = "true",
	 .text = "Whether names go with it; without, addresses and build-ids do."},
	{.path = CONFIG_TARGET_PREFIX "maxRequestBytes",
	 .type = CONFIG_BYTES,
	 .at = OF(max_request_bytes),
	 .normal = "4Mi",
	 .min = 64 * KIB,
	 .max = 64 * MIB,
	 .text = "Larger windows are split."},
	{.path = CONFIG_TARGET_PREFIX "tls.caFile",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = OF(ca_file),
	 .normal = "",
	 .text = "Who may have signed the server's certificate, PEM; without it, whom the system "
		 "trusts."},
	{.path = CONFIG_TARGET_PREFIX "tls.certFile",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = OF(cert_file),
	 .normal = "",
	 .text = "Our certificate, PEM."},
	{.path = CONFIG_TARGET_PREFIX "tls.keyFile",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = OF(key_file),
	 .normal = "",
	 .text = "Its private key, PEM."},

	{.path = "debuginfod.urls",
	 .type = CONFIG_LIST,
	 .form = CONFIG_URL,
	 .at = AT(debuginfod.urls),
	 .normal = "",
	 .text = "Servers that are asked, by build-id, for names that files here lack (CTX-2). "
		 "None: the network is not asked."},
	{.path = "debuginfod.cacheDirectory",
	 .type = CONFIG_TEXT,
	 .form = CONFIG_PATH,
	 .at = AT(debuginfod.cache_directory),
	 .normal = "",
	 .is_fixed = true,
	 .text = "Where their files are kept; without it, in the store."},

	{.path = "log.format",
	 .type = CONFIG_CHOICE,
	 .at = AT(log.format),
	 .normal = "logfmt",
	 .choices = log_formats,
	 .text = "Of messages, on stderr."},
	{.path = "log.level",
	 .type = CONFIG_CHOICE,
	 .at = AT(log.level),
	 .normal = "info",
	 .choices = log_levels,
	 .text = "The least that is said (flag `-v`: debug)."},
};
_Static_assert(ARRAY_SIZE(keys) <= CONFIG_KEYS_MAX, "places has room for every key");

/* For people. */
static const char *const form_texts[CONFIG_FORMS] = {
	[CONFIG_ANY] = "a text",
	[CONFIG_PATH] = "a path from /",
	[CONFIG_SOCKET] = "a path from / of at most 107 bytes",
	[CONFIG_ADDRESS] = "an IP address and a port, 127.0.0.1:7777 or [::1]:7777",
	[CONFIG_URL] = "a URL, https://HOST[:PORT][/PATH] or http://…",
	[CONFIG_UID] = "a user id, 0 to 4294967294",
	[CONFIG_CGROUP] = "a path from the cgroup root, /system.slice/nginx.service for instance",
	[CONFIG_CONTAINER] = "a container id, its first 12 to 64 hexadecimal digits",
	[CONFIG_COMM] = "a thread name of 1 to 15 bytes",
	[CONFIG_VARIABLE] = "the name of a variable: letters, digits and _",
};

const struct config_key *config_key_get(size_t i)
{
	return i < ARRAY_SIZE(keys) ? &keys[i] : NULL;
}

size_t config_key_index(const struct config_key *key)
{
	return (size_t)(key - keys);
}

const char *config_key_path(const struct config_key *key)
{
	return key->path;
}

bool config_key_is_of_target(const struct config_key *key)
{
	return !strncmp(key->path, CONFIG_TARGET_PREFIX, sizeof(CONFIG_TARGET_PREFIX) - 1);
}

bool config_key_is_targets(const struct config_key *key)
{
	return key->type == CONFIG_TARGETS;
}

bool config_key_is_live(const struct config_key *key)
{
	return !key->is_fixed;
}

const char *config_key_note(const struct config_key *key)
{
	return key->note;
}

const struct config_key *config_key_find(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (!strcmp(keys[i].path, path))
			return &keys[i];
	}
	return NULL;
}

bool config_key_is_section(const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (!strncmp(keys[i].path, path, len) && keys[i].path[len] == '.')
			return true;
	}
	return false;
}

bool config_key_variable(const struct config_key *key, char out[CONFIG_NAME_MAX])
{
	size_t n = (size_t)snprintf(out, CONFIG_NAME_MAX, "FLYBALL_");

	if (config_key_is_targets(key) || config_key_is_of_target(key))
		return false;
	for (const char *c = key->path; *c && n + 2 < CONFIG_NAME_MAX; c++) {
		if (isupper((unsigned char)*c))
			out[n++] = '_';
		out[n++] = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
	}
	out[n] = '\0';
	return true;
}

/* ---------------------------------------------------------------- suggestions */
static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Changes of one letter from a to b; letters of both cases are one. */
static size_t distance(const char *a, const char *b)
{
	size_t row[CONFIG_NAME_MAX], n = strlen(b), before, here;

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		before = row[0];
		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			here = before + (tolower((unsigned char)a[i - 1]) !=
					 tolower((unsigned char)b[j - 1]));
			before = row[j];
			row[j] = least(here, least(row[j], row[j - 1]) + 1);
		}
	}
	return row[n];
}

static const char *last_part(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot ? dot + 1 : path;
}

/* Separators and case do not count: stack_map_type is stackMapType. */
static void letters_of(const char *name, char out[CONFIG_NAME_MAX])
{
	size_t n = 0;

	for (; *name && n + 1 < CONFIG_NAME_MAX; name++) {
		if (*name != '_' && *name != '-')
			out[n++] = *name;
	}
	out[n] = '\0';
}

const char *config_key_nearest(const char *path)
{
	char whole[CONFIG_NAME_MAX];
	const char *part = NULL, *found = NULL;
	size_t best = SIZE_MAX, d, limit;

	letters_of(path, whole);
	part = last_part(whole);
	limit = strlen(part) / 4 + 1;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		/* The same key elsewhere is as near as a slip in place; in place wins. */
		d = least(2 * distance(whole, keys[i].path),
			  2 * distance(part, last_part(keys[i].path)) + 1);
		if (d < best) {
			best = d;
			found = keys[i].path;
		}
	}
	return best / 2 <= limit ? found : NULL;
}

/* ---------------------------------------------------------------- what may be given */
static void print_amount(const struct config_key *key, uint64_t v, char *out, size_t out_size)
{
	static const struct {
		uint64_t size;
		const char *name;
	} bytes[] = {{TIB, "Ti"}, {GIB, "Gi"}, {MIB, "Mi"}, {KIB, "Ki"}, {1, ""}},
	  times[] = {{DAY, "d"}, {60 * SECOND, "m"}, {SECOND, "s"}, {1000000, "ms"}};
	size_t u = 0;

	if (key->type == CONFIG_BYTES) {
		while (v % bytes[u].size)
			u++;
		snprintf(out, out_size, "%" PRIu64 "%s", v / bytes[u].size, bytes[u].name);
	} else if (key->type == CONFIG_DURATION) {
		while (v % times[u].size)
			u++;
		snprintf(out, out_size, "%" PRIu64 "%s", v / times[u].size, times[u].name);
	} else {
		snprintf(out, out_size, "%" PRIu64, v);
	}
}

static void print_choices(const struct config_key *key, char *out, size_t out_size)
{
	size_t n = 0;

	out[0] = '\0';
	for (const struct config_choice *c = key->choices; c->name && !c->breaks; c++) {
		const char *between = !n ? "" : c[1].name && !c[1].breaks ? ", " : " or ";

		n += (size_t)snprintf(out + n, out_size - n, "%s%s", between, c->name);
	}
}

void config_key_expects(const struct config_key *key, char *out, size_t out_size)
{
	char min[32], max[32];

	print_amount(key, key->min, min, sizeof(min));
	print_amount(key, key->max, max, sizeof(max));
	switch (key->type) {
	case CONFIG_COUNT:
		snprintf(out, out_size, "%s from %s to %s (%s)",
			 key->is_power_of_two ? "a power of two" : "a whole number", min, max,
			 key->unit);
		break;
	case CONFIG_PERCENT:
		snprintf(out, out_size, "a number above 0 and up to %" PRIu64 " (percent)",
			 key->max / 10000);
		break;
	case CONFIG_BYTES:
		snprintf(out, out_size, "bytes from %s to %s", min, max);
		break;
	case CONFIG_DURATION:
		snprintf(out, out_size, "a time from %s to %s", min, max);
		break;
	case CONFIG_BOOL:
		snprintf(out, out_size, "%s",
			 key->breaks ? (strcmp(key->breaks, "true") ? "true" : "false")
				     : "true or false");
		break;
	case CONFIG_CHOICE:
		print_choices(key, out, out_size);
		break;
	case CONFIG_TEXT:
		snprintf(out, out_size, "%s", form_texts[key->form]);
		break;
	case CONFIG_LIST:
		snprintf(out, out_size, "a list, [A, B]; each %s", form_texts[key->form]);
		break;
	case CONFIG_HEADERS:
		snprintf(out, out_size, "{NAME: VALUE, …}");
		break;
	case CONFIG_TARGETS:
		snprintf(out, out_size, "a list of {kind: …, endpoint: …}");
		break;
	}
}

/* ---------------------------------------------------------------- documentation */
static void print_choice_texts(const struct config_key *key, struct buf *out)
{
	const char *between = "";

	for (const struct config_choice *c = key->choices; c->name && !c->breaks; c++)
		buf_addf(out, " `%s`: %s.", c->name, c->text);
	for (const struct config_choice *c = key->choices; c->name; c++) {
		if (!c->breaks)
			continue;
		buf_addf(out, "%s`%s`", *between ? between : " Refused: ", c->name);
		between = ", ";
	}
	for (const struct config_choice *c = key->choices; c->name; c++) {
		if (c->breaks) {
			buf_addf(out, " (%s).", c->breaks);
			break;
		}
	}
}

static void print_key(const struct config_key *key, struct buf *out)
{
	char text[256];

	config_key_expects(key, text, sizeof(text));
	buf_addf(out, "| `%s` | %s | ", key->path, text);
	if (!key->normal || key->is_required)
		buf_add_str(out, "–");
	else if (key->type == CONFIG_LIST || key->type == CONFIG_HEADERS)
		buf_addf(out, *key->normal ? "`[%s]`" : "none", key->normal);
	else
		buf_addf(out, *key->normal ? "`%s`" : "none", key->normal);
	buf_addf(out, " | %s | %s", key->is_fixed ? "restart" : "live", key->text);
	if (key->choices)
		print_choice_texts(key, out);
	if (key->directive)
		buf_addf(out, " (%s)", key->directive);
	if (key->note)
		buf_addf(out, " **Maps to:** %s.", key->note);
	buf_add_str(out, " |\n");
}

static void print_heading(const char *section, size_t len, struct buf *out)
{
	if (len)
		buf_addf(out, "\n## %.*s\n", (int)len, section);
	else
		buf_add_str(out, "\n## What is sampled\n");
	buf_add_str(out, "\n| key | value | default | change | what it does |\n"
			 "|---|---|---|---|---|\n");
}

void config_keys_print(struct buf *out)
{
	const char *section = NULL;
	size_t len = 0, n;

	buf_add_str(
		out,
		"<!-- generated by `flyball agent --config-markdown`; do not edit -->\n"
		"# Configuration of the agent\n\n"
		"    flyball agent -c node.yaml --check-config    # what is wrong in it, all at "
		"once\n"
		"    flyball agent -c node.yaml --print-config    # what is in force, and where "
		"from\n\n"
		"A YAML file of at most 256 KiB. Nothing is guessed: an unknown or repeated key, a "
		"value "
		"of another type or out of range, an anchor, alias or tag is an error with its "
		"line, "
		"column, key, the directive it breaks (`flyball explain MEM-1`) and what to write "
		"instead. An absent key takes its default. Environment variables go over the file, "
		"flags "
		"over both. Both commands take `--json`; the first exits with 1 when something is "
		"wrong.\n\n"
		"Bytes are a number, or one with `Ki`, `Mi`, `Gi`, `Ti`; times have `ms`, `s`, "
		"`m`, `h` or "
		"`d`. A variable's name is `FLYBALL_` and the key's path in capitals, its parts "
		"and words "
		"divided by `_` (`ebpf.stackMapType` is `FLYBALL_EBPF_STACK_MAP_TYPE`); lists in "
		"it are "
		"divided by commas; targets have none. `live`: a reload applies a change; "
		"`restart`: it "
		"says that one is needed.\n\n"
		"A process is sampled when no `policy.exclude` names it and, where "
		"`policy.include` "
		"names any, one of its lists names this one.\n\n"
		"So far `flyball agent` checks and shows a configuration; the daemon that obeys it "
		"is "
		"not part of this build.\n");
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		n = strcspn(keys[i].path, ".");
		if (!keys[i].path[n])
			n = 0;
		if (!section || n != len || strncmp(section, keys[i].path, n)) {
			section = keys[i].path;
			len = n;
			print_heading(section, len, out);
		}
		print_key(&keys[i], out);
	}
}
