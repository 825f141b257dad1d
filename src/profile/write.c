// SPDX-License-Identifier: Apache-2.0
/* write: formats by file name, and the one door to all writers. */
#include "page.h"
#include "writers.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *ending;
	enum profile_format format;
} formats[] = {
	{".folded", PROFILE_FOLDED},  {".pb.gz", PROFILE_PPROF}, {".otlp", PROFILE_OTLP},
	{".json", PROFILE_OTLP_JSON}, {".html", PROFILE_HTML},
};

int profile_format_of(const char *path, enum profile_format *ret, struct why *why)
{
	char clean[200];
	size_t len = strlen(path);

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		size_t n = strlen(formats[i].ending);

		if (len < n || strcmp(path + len - n, formats[i].ending) != 0)
			continue;
		*ret = formats[i].format;
		return 0;
	}
	text_print(path, len, clean, sizeof(clean));
	return why_set(why, -EINVAL,
		       "\"%s\" does not say its format: end the name in .html, .pb.gz, .folded, "
		       ".otlp or .json",
		       clean);
}

int profile_write(const struct profile *p, enum profile_format format,
		  const struct profile_write_options *options, profile_sink sink, void *ctx,
		  struct why *why)
{
	struct profile_out out;
	int err = -EINVAL, flushed;

	profile_out_init(&out, sink, ctx);
	switch (format) {
	case PROFILE_FOLDED:
		err = profile_write_folded(p, options && options->per_thread, &out);
		break;
	case PROFILE_PPROF:
		err = profile_write_pprof(p, &out);
		break;
	case PROFILE_OTLP:
		err = profile_write_otlp(p, &out);
		break;
	case PROFILE_OTLP_JSON:
		err = profile_write_otlp_json(p, &out);
		break;
	case PROFILE_HTML:
		err = profile_write_html(p, (const char *)profile_page_template,
					 profile_page_template_size, &out);
		break;
	}
	flushed = profile_out_flush(&out);
	if (!err)
		err = flushed;
	if (err)
		why_set(why, err, "%s", err == -ENOMEM ? "out of memory" : strerror(-err));
	return err;
}
