// SPDX-License-Identifier: Apache-2.0
/* cpus: the kernel's lists of CPUs. */
#include "kernel/kernel_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int kernel_read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	text[0] = '\0';
	if (fd < 0)
		return -errno;
	while (len < size - 1) {
		n = read(fd, text + len, size - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	text[len] = '\0';
	close(fd);
	return (int)len;
}

static int parse_number(const char **text, uint32_t *ret)
{
	const char *p = *text;
	uint32_t value = 0;

	if (*p < '0' || *p > '9')
		return -EBADMSG;
	for (; *p >= '0' && *p <= '9'; p++) {
		value = value * 10 + (uint32_t)(*p - '0');
		if (value >= KERNEL_CPUS_MAX)
			return -ERANGE;
	}
	*text = p;
	*ret = value;
	return 0;
}

int kernel_cpus_parse(const char *text, struct kernel_cpus *ret)
{
	struct kernel_cpus cpus = {0};
	uint32_t first, last;
	int err;

	while (*text && *text != '\n') {
		err = parse_number(&text, &first);
		if (err)
			return err;
		last = first;
		if (*text == '-') {
			text++;
			err = parse_number(&text, &last);
			if (err)
				return err;
		}
		if (last < first)
			return -EBADMSG;
		for (uint32_t cpu = first; cpu <= last; cpu++) {
			cpus.count += !kernel_cpus_has(&cpus, cpu);
			cpus.bits[cpu / 64] |= 1ULL << (cpu % 64);
		}
		if (last >= cpus.limit)
			cpus.limit = last + 1;
		if (*text == ',')
			text++;
		else if (*text && *text != '\n')
			return -EBADMSG;
	}
	*ret = cpus;
	return 0;
}

int kernel_cpus_read(const char *which, struct kernel_cpus *ret, struct why *why)
{
	char path[64], text[4096];
	int n;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/%s", which);
	n = kernel_read_text(path, text, sizeof(text));
	if (n < 0)
		return why_set(why, -EOPNOTSUPP, "%s cannot be read (%s): mount sysfs on /sys",
			       path, strerror(-n));
	n = kernel_cpus_parse(text, ret);
	if (n < 0)
		return why_set(why, n, "%s holds no list of CPUs", path);
	return 0;
}

bool kernel_cpus_has(const struct kernel_cpus *cpus, uint32_t cpu)
{
	return cpu < KERNEL_CPUS_MAX && cpus->bits[cpu / 64] >> (cpu % 64) & 1;
}
