/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tickcount: the other counter. Opens cpu-clock events of its own, without any BPF program, and
 * counts the samples the kernel delivers into perf rings: these are not skipped while a BPF
 * program runs.
 *
 *   tickcount PERIOD_NS
 *
 * Prints "ready", counts until SIGTERM, then {"cpus": [{"cpu": N, "samples": N, "lost": N,
 * "enabled_ns": N}...]}.
 */
#include <linux/perf_event.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "workload.h"

#define CPUS_MAX   1024
#define RING_BYTES (256 * 1024u)

struct counter {
	int fd, cpu;
	struct perf_event_mmap_page *page;
	uint64_t samples, lost;
};

static struct counter counters[CPUS_MAX];
static int counter_count;
static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static int open_counter(struct counter *c, int cpu, uint64_t period_ns)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = period_ns,
		.sample_type = PERF_SAMPLE_TIME,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
	};
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	c->cpu = cpu;
	c->fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (c->fd < 0)
		return -errno;
	c->page = mmap(NULL, page + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
	must(c->page != MAP_FAILED, "mmap");
	return 0;
}

static void drain(struct counter *c)
{
	const char *data = (const char *)c->page + (size_t)sysconf(_SC_PAGESIZE);
	uint64_t head = __atomic_load_n(&c->page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = c->page->data_tail;

	while (tail < head) {
		/* Records are multiples of 8 bytes, so a header never wraps. */
		const struct perf_event_header *h =
			(const void *)(data + (tail & (RING_BYTES - 1)));
		uint64_t lost;

		if (h->type == PERF_RECORD_SAMPLE)
			c->samples++;
		if (h->type == PERF_RECORD_LOST) {
			memcpy(&lost, data + ((tail + 16) & (RING_BYTES - 1)), sizeof(lost));
			c->lost += lost;
		}
		tail += h->size;
	}
	__atomic_store_n(&c->page->data_tail, tail, __ATOMIC_RELEASE);
}

static uint64_t enabled_ns(const struct counter *c)
{
	uint64_t values[2];

	must(read(c->fd, values, sizeof(values)) == sizeof(values), "read");
	return values[1];
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
		int err = open_counter(&counters[counter_count], cpu, number(argv[1]));

		if (err == -ENODEV || err == -EINVAL)
			continue;
		must(!err, "perf_event_open");
		counter_count++;
	}
	printf("ready\n");
	fflush(stdout);
	while (!stop) {
		poll(NULL, 0, 50);
		for (int i = 0; i < counter_count; i++)
			drain(&counters[i]);
	}
	printf("{\"cpus\": [");
	for (int i = 0; i < counter_count; i++) {
		uint64_t ns = enabled_ns(&counters[i]);

		drain(&counters[i]);
		printf("%s{\"cpu\": %d, \"samples\": %llu, \"lost\": %llu, \"enabled_ns\": %llu}",
		       i ? ", " : "", counters[i].cpu, (unsigned long long)counters[i].samples,
		       (unsigned long long)counters[i].lost, (unsigned long long)ns);
	}
	printf("]}\n");
	return 0;
}
