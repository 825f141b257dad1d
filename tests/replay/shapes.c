// SPDX-License-Identifier: Apache-2.0
/*
 * Never ends: two threads go through the shapes that a stack can have, while timer signals, one on
 * a stack of its own with another inside, interrupt them anywhere. Writes a byte when it has begun.
 */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#define STACK_BYTES 65536

static _Thread_local volatile uint64_t sink;

static __attribute__((noinline)) uint64_t leaf(uint64_t x)
{
	return x * 0x9e3779b97f4a7c15ULL ^ x >> 7;
}

static __attribute__((noinline)) uint64_t saves_all(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = leaf(a), y = leaf(b), z = leaf(c), w = leaf(x), v = leaf(y);

	sink += leaf(z);
	return x + y + z + w + v + leaf(a + b);
}

static __attribute__((noinline)) uint64_t recurse(unsigned int depth)
{
	uint64_t below = depth ? recurse(depth - 1) : leaf(sink);

	return saves_all(below, depth, below) + 1;
}

static int by_value(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	sink += leaf((uint64_t)x);
	return (x > y) - (x < y);
}

static __attribute__((noinline)) void sorts(void)
{
	int items[64];

	for (int i = 0; i < 64; i++)
		items[i] = (int)leaf((uint64_t)i + sink) & 1023;
	qsort(items, 64, sizeof(items[0]), by_value);
	sink += (uint64_t)items[0];
}

static __attribute__((noinline)) uint64_t realigned(size_t bytes)
{
	char *grown = alloca(bytes);
	_Alignas(64) uint64_t wide[8];

	memset(grown, (int)bytes, bytes);
	for (unsigned int i = 0; i < 8; i++)
		wide[i] = leaf(i + (uint64_t)grown[i % bytes]);
	__asm__ volatile("" ::"r"(wide), "r"(grown) : "memory");
	return saves_all(wide[1], wide[2], wide[3]);
}

static __attribute__((noinline)) uint64_t many(int count, ...)
{
	uint64_t sum = 0;
	va_list list;

	va_start(list, count);
	for (int i = 0; i < count; i++)
		sum += leaf(va_arg(list, uint64_t));
	va_end(list);
	return sum;
}

static __attribute__((noinline, noreturn)) void jumps(jmp_buf *where)
{
	sink += leaf(sink);
	longjmp(*where, 1);
}

static __attribute__((noinline)) void lands(void)
{
	jmp_buf here;

	if (!setjmp(here))
		jumps(&here);
}

static __attribute__((noinline)) uint64_t tail(uint64_t x)
{
	return leaf(x + 1);
}

static void prints(void)
{
	char text[128];

	snprintf(text, sizeof(text), "%d %s %f %llx", (int)sink, "text", (double)sink,
		 (unsigned long long)sink);
	sink += (uint64_t)text[0];
}

static void inner(int signal)
{
	(void)signal;
	sink += saves_all(sink, 1, 2);
}

static void outer(int signal)
{
	(void)signal;
	raise(SIGUSR1);
	sink += recurse(3);
}

static void stack_give(void)
{
	stack_t stack = {.ss_sp = malloc(STACK_BYTES), .ss_size = STACK_BYTES};

	if (!stack.ss_sp || sigaltstack(&stack, NULL))
		abort();
}

static __attribute__((noinline)) void round_once(unsigned int round)
{
	sink += recurse(round % 40);
	sorts();
	sink += realigned(round % 100 + 1);
	sink += many(4, sink, sink + 1, sink + 2, sink + 3);
	lands();
	sink += tail(sink);
	prints();
	raise(SIGUSR2);
}

static void *go_on(void *unused)
{
	(void)unused;
	stack_give();
	for (unsigned int round = 0;; round++)
		round_once(round);
	return NULL;
}

int main(void)
{
	const struct itimerval often = {{0, 2000}, {0, 2000}};
	struct sigaction on_stack = {.sa_handler = outer, .sa_flags = SA_ONSTACK | SA_RESTART};
	struct sigaction plain = {.sa_handler = inner, .sa_flags = SA_RESTART};
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sigaction(SIGPROF, &on_stack, NULL) || sigaction(SIGUSR1, &plain, NULL) ||
	    sigaction(SIGUSR2, &on_stack, NULL))
		return 1;
	stack_give();
	if (pthread_create(&thread, NULL, go_on, NULL) || setitimer(ITIMER_PROF, &often, NULL) ||
	    write(1, "x", 1) != 1)
		return 1;
	go_on(NULL);
	return 0;
}
