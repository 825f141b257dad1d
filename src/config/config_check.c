// SPDX-License-Identifier: Apache-2.0
/* config_check: what keys say only together. Each finding stands at the key to change. An absent
 * key breaks nothing: only a value that is there can. */
#include "config_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The tiers of CPU-3: what holds from 80 % of the node's CPU on, and at the most. */
enum { BUSY_HZ = 11, LEAST_HZ = 5, LEAST_DEPTH = 32 };

static struct config_place place(const struct config *c, const char *path, uint32_t target)
{
	return config_place_of(c, config_key_find(path), target);
}

static bool is_given(const struct config *c, const char *path)
{
	return place(c, path, 0).source != CONFIG_DEFAULT;
}

static struct config_finding *find(const struct config *c, const char *path, uint32_t target,
				   const char *directive, struct config_report *report)
{
	return config_report_add(report, place(c, path, target), path, directive);
}

/* "line 6", "FLYBALL_…": where the other value is. */
static void where(struct config_place p, char *out, size_t out_size)
{
	if (p.source == CONFIG_FILE)
		snprintf(out, out_size, "line %u", p.line);
	else
		snprintf(out, out_size, "%s", p.name ? p.name : "the default");
}

static void check_throttling(const struct config *c, struct config_report *report)
{
	struct config_finding *f;
	char other[CONFIG_NAME_MAX];

	if (c->has_throttling ||
	    (c->sampling_hz <= LEAST_HZ && c->unwind_strategy == CONFIG_UNWIND_FRAME_POINTERS &&
	     c->max_stack_depth <= LEAST_DEPTH))
		return;
	if (c->sampling_hz > BUSY_HZ && is_given(c, "samplingFrequencyHz")) {
		f = find(c, "samplingFrequencyHz", 0, "CPU-2", report);
		where(place(c, "dynamicThrottlingEnabled", 0), other, sizeof(other));
		config_say(f->problem, sizeof(f->problem),
			   "%u Hz stay fixed on a busy node, since dynamicThrottlingEnabled is "
			   "false (%s)",
			   c->sampling_hz, other);
		config_say(f->fix, sizeof(f->fix),
			   "set dynamicThrottlingEnabled: true, or give at most %d", LEAST_HZ);
	}
	f = find(c, "dynamicThrottlingEnabled", 0, "CPU-3", report);
	where(place(c, "samplingFrequencyHz", 0), other, sizeof(other));
	config_say(f->problem, sizeof(f->problem),
		   "false turns the tiers off at %u Hz (samplingFrequencyHz, %s), %s, depth %u",
		   c->sampling_hz, other,
		   c->unwind_strategy == CONFIG_UNWIND_DWARF ? "table unwinding" : "frame pointers",
		   c->max_stack_depth);
	config_say(f->fix, sizeof(f->fix),
		   "set it to true, or keep to the last tier: samplingFrequencyHz: %d, "
		   "unwindStrategy: framePointers, maxStackDepth: %d",
		   LEAST_HZ, LEAST_DEPTH);
}

static void check_memory(const struct config *c, struct config_report *report)
{
	struct config_finding *f;

	if (c->memory_request_bytes <= c->memory_limit_bytes ||
	    !is_given(c, "resources.requests.memory"))
		return;
	f = find(c, "resources.requests.memory", 0, "", report);
	config_say(f->problem, sizeof(f->problem), "more is requested than the limit allows");
	config_say(f->fix, sizeof(f->fix), "give at most resources.limits.memory, %" PRIu64,
		   c->memory_limit_bytes);
}

/* A certificate without its key, or the other way round. Both are paths of one target, or none. */
static void check_pair(const struct config *c, uint32_t target, const char *cert_path,
		       const char *cert, const char *key_path, const char *key,
		       struct config_report *report)
{
	struct config_finding *f;
	bool has_cert = *cert;

	if (!*cert == !*key)
		return;
	f = find(c, has_cert ? cert_path : key_path, target, "", report);
	config_say(f->problem, sizeof(f->problem), "%s",
		   has_cert ? "there is no key for this certificate"
			    : "there is no certificate for this key");
	config_say(f->fix, sizeof(f->fix), "give %s too", has_cert ? key_path : cert_path);
}

static bool is_loopback(const char *address)
{
	return !*address || !strncmp(address, "127.", 4) || !strncmp(address, "[::1]:", 6);
}

static void check_http(const struct config *c, struct config_report *report)
{
	struct config_finding *f;

	check_pair(c, 0, "http.tls.certFile", c->http.cert_file, "http.tls.keyFile",
		   c->http.key_file, report);
	if (is_loopback(c->http.address) ||
	    (*c->http.cert_file && *c->http.key_file && *c->http.token_file))
		return;
	f = find(c, "http.address", 0, "", report);
	config_say(f->problem, sizeof(f->problem),
		   "%.64s can be reached from elsewhere, and %s is missing", c->http.address,
		   *c->http.token_file ? "http.tls" : "http.tokenFile");
	config_say(f->fix, sizeof(f->fix),
		   "give http.tls.certFile, http.tls.keyFile and http.tokenFile, or keep to "
		   "127.0.0.1:7777");
}

static void check_required(const struct config *c, uint32_t t, struct config_report *report)
{
	const struct config_key *key;
	struct config_finding *f;
	char expects[256];

	for (size_t i = 0; (key = config_key_get(i)); i++) {
		if (!key->is_required || config_place_of(c, key, t).source != CONFIG_DEFAULT)
			continue;
		f = config_report_add(report, c->targets[t].place, key->path, "");
		config_key_expects(key, expects, sizeof(expects));
		config_say(f->problem, sizeof(f->problem), "is missing");
		config_say(f->fix, sizeof(f->fix), "give %s", expects);
	}
}

static void check_target(const struct config *c, uint32_t t, struct config_report *report)
{
	const struct config_target *target = &c->targets[t];
	struct config_finding *f;

	check_required(c, t, report);
	check_pair(c, t, CONFIG_TARGET_PREFIX "tls.certFile", target->cert_file,
		   CONFIG_TARGET_PREFIX "tls.keyFile", target->key_file, report);
	if (strncmp(target->endpoint, "http:", 5) != 0 ||
	    (!*target->ca_file && !*target->cert_file && !*target->key_file))
		return;
	f = find(c, CONFIG_TARGET_PREFIX "endpoint", t, "", report);
	config_say(f->problem, sizeof(f->problem), "tls is set, and http:// does not use it");
	config_say(f->fix, sizeof(f->fix), "write https://, or take tls away");
}

int config_check(const struct config *config, struct config_report *report)
{
	check_throttling(config, report);
	check_memory(config, report);
	check_http(config, report);
	for (uint32_t t = 0; t < config->target_count; t++)
		check_target(config, t, report);
	return report->error_count ? -EINVAL : 0;
}
