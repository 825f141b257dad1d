// SPDX-License-Identifier: Apache-2.0
/* text: numbers and sizes from the command line, and foreign bytes made fit for a terminal. */
#include "base.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int text_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)s[0]))
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno || v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

int text_parse_bytes(const char *s, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	unsigned long long v;
	unsigned int shift = 0;
	const char *u;
	char *end;

	if (!isdigit((unsigned char)s[0]))
		return -EINVAL;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno)
		return -ERANGE;
	if (*end) {
		u = strchr(units, toupper((unsigned char)*end));
		if (!u)
			return -EINVAL;
		shift = 10 * (unsigned int)(u - units + 1);
		end++;
		if (*end == 'i')
			end++;
		if (*end == 'B')
			end++;
	}
	if (*end)
		return -EINVAL;
	if (shift && v >> (64 - shift))
		return -ERANGE;
	*ret_bytes = v << shift;
	return 0;
}

int text_parse_duration(const char *s, uint64_t *ret_ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"", 1e9},	  {"s", 1e9},	 {"ms", 1e6},	{"us", 1e3},
		     {"m", 60e9}, {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
	double v;
	char *end;

	if (!isdigit((unsigned char)s[0]) || (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')))
		return -EINVAL;
	v = strtod(s, &end);
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].unit))
			continue;
		if (!(v * units[i].ns < 9e18))
			return -ERANGE;
		*ret_ns = (uint64_t)(v * units[i].ns);
		return 0;
	}
	return -EINVAL;
}

char *text_bytes(uint64_t bytes, char *out, size_t out_size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes;
	size_t u = 0;

	while (v >= 1024 && u + 1 < ARRAY_SIZE(units)) {
		v /= 1024;
		u++;
	}
	snprintf(out, out_size, v < 10 && u ? "%.1f %s" : "%.0f %s", v, units[u]);
	return out;
}

/* Decodes one character; 0 bytes consumed never happens. Returns -1 for a malformed sequence
 * (RFC 3629: no overlongs, no surrogates, nothing past U+10FFFF). */
static int32_t utf8_next(const unsigned char *s, size_t len, size_t *ret_used)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = s[0] < 0x80	     ? 1
		   : s[0] >> 5 == 6  ? 2
		   : s[0] >> 4 == 14 ? 3
		   : s[0] >> 3 == 30 ? 4
				     : 0;
	uint32_t c;

	*ret_used = 1;
	if (n == 1)
		return s[0];
	if (!n || n > len)
		return -1;
	c = s[0] & (0xffU >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if (s[i] >> 6 != 2)
			return -1;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return -1;
	*ret_used = n;
	return (int32_t)c;
}

static bool is_control(int32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069) || c == 0x2028 || c == 0x2029;
}

size_t text_print(const char *in, size_t in_len, char *out, size_t out_size)
{
	static const char replacement[] = "\xef\xbf\xbd";
	const unsigned char *s = (const unsigned char *)in;
	size_t n = 0, i = 0;

	if (!out_size)
		return 0;
	while (i < in_len) {
		size_t used, put;
		int32_t c = utf8_next(s + i, in_len - i, &used);
		const char *from = in + i;

		put = used;
		if (c < 0) {
			from = replacement;
			put = sizeof(replacement) - 1;
		} else if (is_control(c)) {
			from = "?";
			put = 1;
		}
		if (n + put + 1 > out_size)
			break;
		memcpy(out + n, from, put);
		n += put;
		i += used;
	}
	out[n] = 0;
	return n;
}

bool text_is_utf8(const char *s, size_t len)
{
	for (size_t i = 0, used; i < len; i += used) {
		if (utf8_next((const unsigned char *)s + i, len - i, &used) < 0)
			return false;
	}
	return true;
}
