// SPDX-License-Identifier: Apache-2.0
/* export_bodies: a block becomes one or more bodies: split, wrapped as the kind wants it,
 * compressed, framed. */
#include "export_private.h"

#include "profile/otlp_split.h"
#include "rpc.pb-c.h"

#include <errno.h>
#include <protobuf-c/protobuf-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define BODY_MAX_BYTES (1UL << 30)
#define PARTS_MAX      4096
#define ZSTD_LEVEL     3
#define GZIP_LEVEL     4 /* 6: 8 % smaller in three times the time */
#define GZIP_WINDOW    (15 + 16)

void export_bodies_init(struct export_bodies *b, const struct export_options *options)
{
	memset(b, 0, sizeof(*b));
	b->options = options;
	buf_init(&b->body, MEM_EXPORT, BODY_MAX_BYTES);
}

static void parts_free(struct export_bodies *b)
{
	for (size_t i = 0; i < b->count; i++)
		buf_done(&b->parts[i]);
	b->count = b->at = 0;
}

void export_bodies_done(struct export_bodies *b)
{
	parts_free(b);
	mem_free(MEM_EXPORT, b->parts);
	buf_done(&b->body);
}

static int part_add(void *ctx, const void *data, size_t bytes)
{
	struct export_bodies *b = ctx;
	void *parts = b->parts;
	struct buf *part;
	int err = mem_grow(MEM_EXPORT, &parts, &b->cap, b->count + 1, PARTS_MAX, sizeof(*b->parts));

	b->parts = parts;
	if (err)
		return err;
	part = &b->parts[b->count++];
	buf_init(part, MEM_EXPORT, BODY_MAX_BYTES);
	buf_add(part, data, bytes);
	return part->err;
}

/* ------------------------------------------------------------------ compression */

/* Room for most bytes behind what the body holds; its length is set by the caller. */
static unsigned char *reserve(struct buf *body, size_t most)
{
	size_t len = body->len;
	void *p = body->data;
	int err = mem_grow(body->part, &p, &body->cap, len + most + 1, body->max, 1);

	body->data = p;
	if (err) {
		body->err = err;
		return NULL;
	}
	return (unsigned char *)body->data + len;
}

static int add_gzip(struct buf *body, const void *data, size_t bytes)
{
	z_stream z = {.next_in = (unsigned char *)data, .avail_in = (unsigned int)bytes};
	size_t most;
	int err = 0;

	if (deflateInit2(&z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	most = deflateBound(&z, bytes);
	z.next_out = reserve(body, most);
	z.avail_out = (unsigned int)most;
	if (!z.next_out || deflate(&z, Z_FINISH) != Z_STREAM_END)
		err = -ENOMEM;
	body->len += err ? 0 : z.total_out;
	deflateEnd(&z);
	return err;
}

static int add_zstd(struct buf *body, const void *data, size_t bytes)
{
	size_t most = ZSTD_compressBound(bytes), n;
	void *to = reserve(body, most);

	if (!to)
		return -ENOMEM;
	n = ZSTD_compress(to, most, data, bytes, ZSTD_LEVEL);
	if (ZSTD_isError(n))
		return -ENOMEM;
	body->len += n;
	return 0;
}

static int add_compressed(struct export_bodies *b, const void *data, size_t bytes)
{
	switch (b->options->compression) {
	case EXPORT_GZIP:
		return add_gzip(&b->body, data, bytes);
	case EXPORT_ZSTD:
		return add_zstd(&b->body, data, bytes);
	case EXPORT_PLAIN:
		break;
	}
	buf_add(&b->body, data, bytes);
	return b->body.err;
}

/* ------------------------------------------------------------------ bodies */

/* Parca's WriteRawRequest around a pprof file, whose gzip is kept. */
static int add_parca(struct export_bodies *b, const void *data, size_t bytes)
{
	Rpc__WriteRawRequest request = RPC__WRITE_RAW_REQUEST__INIT;
	Rpc__RawProfileSeries series = RPC__RAW_PROFILE_SERIES__INIT, *series_list = &series;
	Rpc__LabelSet set = RPC__LABEL_SET__INIT;
	Rpc__RawSample sample = RPC__RAW_SAMPLE__INIT, *sample_list = &sample;
	Rpc__Label name = RPC__LABEL__INIT, service = RPC__LABEL__INIT,
		   *labels[] = {&name, &service};
	const char *given = b->options->service;
	unsigned char *to;
	size_t packed;

	name.name = (char *)"__name__";
	name.value = (char *)"process_cpu";
	service.name = (char *)"service_name";
	service.value = (char *)(given ? given : "flyball");
	set.labels = labels;
	set.n_labels = ARRAY_SIZE(labels);
	sample.raw_profile = (ProtobufCBinaryData){bytes, (uint8_t *)data};
	series.labels = &set;
	series.samples = &sample_list;
	series.n_samples = 1;
	request.series = &series_list;
	request.n_series = 1;
	packed = rpc__write_raw_request__get_packed_size(&request);
	to = reserve(&b->body, packed);
	if (!to)
		return -ENOMEM;
	b->body.len += rpc__write_raw_request__pack(&request, to);
	return 0;
}

/* gRPC's head of a message: compressed or not, and its length. */
static void put_frame(struct buf *body, bool is_compressed)
{
	size_t n = body->len - 5;
	unsigned char head[5] = {is_compressed, (unsigned char)(n >> 24), (unsigned char)(n >> 16),
				 (unsigned char)(n >> 8), (unsigned char)n};

	memcpy(body->data, head, sizeof(head));
}

static int body_make(struct export_bodies *b, const void *data, size_t bytes)
{
	const struct export_kind_traits *kind = export_kind_traits(b->options->kind);
	bool is_framed = kind->protocol == EXPORT_PROTOCOL_GRPC;
	int err;

	buf_reset(&b->body);
	if (is_framed)
		buf_add(&b->body, "\0\0\0\0", 5);
	if (b->options->kind == EXPORT_PARCA) {
		err = add_parca(b, data, bytes);
	} else if (kind->takes_pprof) {
		buf_add(&b->body, data, bytes);
		err = b->body.err;
	} else {
		err = add_compressed(b, data, bytes);
	}
	if (!err && b->body.err)
		err = b->body.err;
	if (!err && is_framed)
		put_frame(&b->body, !kind->takes_pprof && b->options->compression != EXPORT_PLAIN);
	b->encoded_bytes = bytes;
	return err;
}

static int body_at(struct export_bodies *b, struct why *why)
{
	int err = b->count ? body_make(b, b->parts[b->at].data, b->parts[b->at].len)
			   : body_make(b, b->block->data, b->block->bytes);

	return err ? why_set(why, err, "the request cannot be made: %s", strerror(-err)) : 0;
}

int export_bodies_begin(struct export_bodies *b, const struct export_block *block, struct why *why)
{
	const struct export_options *o = b->options;
	struct profile_split_options split = {.max_bytes = o->request_max_bytes,
					      .without_names = o->without_names};
	int err = 0;

	parts_free(b);
	b->block = block;
	if (block->bytes > BODY_MAX_BYTES)
		return why_set(why, -ERANGE, "it has %zu bytes, more than are sent", block->bytes);
	if (!export_kind_takes_pprof(o->kind)) {
		if (!profile_split_is_request(block->data, block->bytes))
			return why_set(why, -EBADMSG, "this is no OTLP export request of profiles");
		if (o->without_names || block->bytes > o->request_max_bytes)
			err = profile_split(block->data, block->bytes, &split, part_add, b, why);
		if (!err && (o->without_names || block->bytes > o->request_max_bytes) && !b->count)
			err = why_set(why, -EBADMSG, "it holds no profile");
	}
	return err ? err : body_at(b, why);
}

int export_bodies_next(struct export_bodies *b, struct why *why)
{
	int err;

	if (b->at < b->count)
		buf_done(&b->parts[b->at]);
	if (++b->at >= b->count)
		return 0;
	err = body_at(b, why);
	return err ? err : 1;
}
