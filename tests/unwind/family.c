/* SPDX-License-Identifier: Apache-2.0 */
/*
 * family: one program whose every stack has a known answer, built in many ways.
 *
 *   family [-w WARM] [-n UNITS] [-d DEPTH] [--memfd] [--huge] [SCENARIO...]
 *
 * First u_warm works for WARM units, then each scenario (default: all) for UNITS units of about
 * half a millisecond. All functions that may be a frame are called u_NAME, but main; what else
 * stands in a stack is the C library's. The chains that are right are written down in
 * tests/system/chains.py.
 * --memfd starts again from a memfd; --huge first moves its own text to anonymous huge pages.
 */
#include <link.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <pthread.h>

#define NOINLINE __attribute__((noinline))
/* Behind a call: it is not the last thing done, so it is no jump. */
#define AFTER() __asm__ volatile("" ::: "memory")
#define CHECK(ok)                                                                                  \
	do {                                                                                       \
		if (!(ok)) {                                                                       \
			fprintf(stderr, "family: line %d: " #ok "\n", __LINE__);                   \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static volatile unsigned long sum;
static long units = 50;
static int depth = 100;

/* One unit. */
NOINLINE void u_spin(void)
{
	for (int i = 0; i < 300000; i++)
		sum += sum * 3 + 1;
}

NOINLINE static void u_each(void (*scenario)(void))
{
	for (long i = 0; i < units; i++)
		scenario();
}

/* ------------------------------------------------------------------------------ plain calls */

NOINLINE void u_plain_mid(long a, long b)
{
	volatile long kept[4] = {a, b};

	u_spin();
	sum += (unsigned long)kept[a & 3];
}

NOINLINE void u_plain(void)
{
	u_plain_mid(1, 2);
	AFTER();
}

NOINLINE void u_warm(void)
{
	u_plain_mid(3, 4);
	AFTER();
}

NOINLINE void u_rec(int n)
{
	if (n > 1)
		u_rec(n - 1);
	else
		u_spin();
	AFTER();
	sum++;
}

NOINLINE void u_deep(void)
{
	u_rec(depth);
	AFTER();
}

NOINLINE void u_varargs_mid(int count, ...)
{
	va_list list;
	double total = 0;

	va_start(list, count);
	for (int i = 0; i < count; i++)
		total += va_arg(list, double);
	va_end(list);
	u_spin();
	sum += (unsigned long)total;
}

NOINLINE void u_varargs(void)
{
	u_varargs_mid(3, 1.0, 2.0, 3.0);
	AFTER();
}

/* At -O0 a call, else a jump: then it is no frame. */
NOINLINE void u_tailer(int n)
{
	sum += (unsigned long)n;
	u_spin();
}

NOINLINE void u_tail(void)
{
	u_tailer(7);
	AFTER();
}

/* The call is the last instruction of u_last: its return address is u_decoy's first. */
static jmp_buf back;

__attribute__((noreturn)) NOINLINE void u_never(void)
{
	u_spin();
	longjmp(back, 1);
}

NOINLINE void u_last(void)
{
	char room[40];

	__asm__ volatile("" ::"r"(room) : "memory");
	u_never();
}

NOINLINE void u_decoy(void)
{
	char room[400];

	__asm__ volatile("" ::"r"(room) : "memory");
	sum++;
	__asm__ volatile("" ::"r"(room) : "memory");
}

NOINLINE void u_noreturn(void)
{
	if (!setjmp(back))
		u_last();
	if (units < 0)
		u_decoy();
	AFTER();
}

/* Nearly all prologue and epilogue. */
NOINLINE int u_tiny(int a)
{
	register int b = a;

	__asm__ volatile("" : "+r"(b)::"rbx", "r12", "r13", "r14", "r15");
	return b + 1;
}

NOINLINE void u_proep(void)
{
	for (int i = 0; i < 100000; i++)
		sum += (unsigned long)u_tiny(i);
}

/* ------------------------------------------------------------------------------ odd frames */

NOINLINE void u_alloca_mid(long a, long b, long c, long d, long e, long f, long g, long h)
{
	_Alignas(64) volatile char aligned[128];
	volatile char *room = __builtin_alloca((size_t)(g + h));

	aligned[a] = (char)(b + c + d + e + f);
	room[0] = aligned[b];
	u_spin();
	sum += (unsigned long)(room[0] + aligned[a]);
}

NOINLINE void u_alloca(void)
{
	u_alloca_mid(1, 1, 1, 2, 3, 4, 200 + depth, 8);
	AFTER();
}

/* A vector of 32 bytes on the stack wants the stack realigned. */
typedef double vector __attribute__((vector_size(32)));

NOINLINE void u_vector_mid(double x)
{
	volatile vector v = {x, x + 1, x + 2, x + 3};
	vector w;

	u_spin();
	w = v;
	sum += (unsigned long)(w[0] + w[3]);
}

NOINLINE void u_vector(void)
{
	u_vector_mid((double)depth);
	AFTER();
}

static jmp_buf place;

NOINLINE void u_jump(int n)
{
	sum++;
	if (n)
		longjmp(place, n);
}

NOINLINE void u_jumped(void)
{
	u_spin();
	AFTER();
}

NOINLINE void u_setjmp(void)
{
	if (!setjmp(place))
		u_jump(1);
	u_jumped();
	AFTER();
}

/* ------------------------------------------------------------------------------ callbacks */

NOINLINE int u_compare(const void *a, const void *b)
{
	u_spin();
	return *(const int *)a - *(const int *)b;
}

/* Four elements take four to six comparisons. */
NOINLINE void u_qsort(void)
{
	int values[] = {3, 1, 2, 0};

	qsort(values, 4, sizeof(int), u_compare);
	AFTER();
}

NOINLINE void u_plt(void)
{
	for (int i = 0; i < 20000; i++)
		sum += (unsigned long)ffsl((long)sum);
}

NOINLINE void u_vdso(void)
{
	struct timespec t;

	for (int i = 0; i < 10000; i++) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		sum += (unsigned long)t.tv_nsec;
	}
}

NOINLINE void u_syscall(void)
{
	for (int i = 0; i < 2000; i++)
		sum += (unsigned long)syscall(SYS_getppid);
}

/* ------------------------------------------------------------------------------ signals */

void u_trap(void);
/* The fault is on the first instruction, and before it lies a function with another frame. */
__asm__(".text\n"
	".type before_trap, @function\n"
	"before_trap:\n"
	"	.cfi_startproc\n"
	"	sub $0x88, %rsp\n"
	"	.cfi_def_cfa_offset 0x90\n"
	"	nop\n"
	"	hlt\n"
	"	.cfi_endproc\n"
	".size before_trap, . - before_trap\n"
	".globl u_trap\n"
	".type u_trap, @function\n"
	"u_trap:\n"
	"	.cfi_startproc\n"
	"	ud2\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size u_trap, . - u_trap\n");

static int nesting;

NOINLINE void u_second(void)
{
	u_spin();
	AFTER();
}

NOINLINE void u_first(void)
{
	u_trap();
	AFTER();
}

static void u_skip_trap(void *context)
{
	ucontext_t *interrupted = context;

	interrupted->uc_mcontext.gregs[REG_RIP] += 2;
}

NOINLINE void u_on_trap(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	if (nesting-- > 1)
		u_first();
	else
		u_second();
	u_skip_trap(context);
}

NOINLINE void u_on_raise(int number)
{
	(void)number;
	u_spin();
	AFTER();
}

NOINLINE void u_alt(void)
{
	nesting = 1;
	u_trap();
	AFTER();
}

NOINLINE void u_nested(void)
{
	nesting = 2;
	u_trap();
	AFTER();
}

/* The interrupted frame is a system call. */
NOINLINE void u_raise(void)
{
	kill(getpid(), SIGUSR1);
	AFTER();
}

static void u_signals(void)
{
	static char stack[1 << 16];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction trap = {.sa_sigaction = u_on_trap,
				 .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	struct sigaction raised = {.sa_handler = u_on_raise};

	CHECK(!sigaltstack(&alternate, NULL));
	CHECK(!sigaction(SIGILL, &trap, NULL));
	CHECK(!sigaction(SIGUSR1, &raised, NULL));
}

/* ------------------------------------------------------------------------------ other roots */

NOINLINE void *u_thread(void *arg)
{
	(void)arg;
	u_each(u_plain);
	return NULL;
}

/* In a child: nobody is left when the program is ended. */
NOINLINE void u_die_with(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	AFTER();
}

NOINLINE void u_vfork(void)
{
	pid_t pid = vfork();
	int status;

	if (!pid) {
		u_spin();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
}

NOINLINE int u_clone(void *arg)
{
	u_die_with(*(const pid_t *)arg);
	u_each(u_plain);
	return 0;
}

static void u_start_thread(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, u_thread, NULL));
	CHECK(!pthread_join(thread, NULL));
}

static void u_start_clone(void)
{
	static _Alignas(16) char stack[1 << 16];
	pid_t self = getpid(), pid;
	int status;

	pid = clone(u_clone, stack + sizeof(stack), CLONE_VM | SIGCHLD, &self);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
}

#ifdef __GLIBC__
static ucontext_t outside, inside;

NOINLINE void u_fiber(void)
{
	u_each(u_plain);
	AFTER();
}

static void u_start_fiber(void)
{
	static char stack[1 << 16];

	CHECK(!getcontext(&inside));
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = sizeof(stack);
	inside.uc_link = &outside;
	makecontext(&inside, u_fiber, 0);
	CHECK(!swapcontext(&outside, &inside));
}
#endif

/* ------------------------------------------------------------------------------ start */

static void u_start_again(char **argv)
{
	int from = memfd_create("family", MFD_CLOEXEC);
	FILE *self = fopen("/proc/self/exe", "rb");
	static char data[1 << 16];
	size_t got;

	CHECK(from >= 0 && self);
	while ((got = fread(data, 1, sizeof(data), self)))
		CHECK(write(from, data, got) == (ssize_t)got);
	fclose(self);
	fexecve(from, argv, (char *[]){NULL});
	CHECK(!"fexecve");
}

/* The text that holds this function, copied and put in its own place in one step. */
static int u_move_text(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t here = (uintptr_t)u_plain - info->dlpi_addr;

	(void)size;
	(void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = (info->dlpi_addr + p->p_vaddr) & ~4095ul;
		size_t bytes = (info->dlpi_addr + p->p_vaddr + p->p_memsz - start + 4095) & ~4095ul;
		void *copy;

		if (p->p_type != PT_LOAD || here - p->p_vaddr >= p->p_memsz)
			continue;
		copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
		CHECK(copy != MAP_FAILED);
		madvise(copy, bytes, MADV_HUGEPAGE);
		memcpy(copy, (void *)start, bytes);
		CHECK(!mprotect(copy, bytes, PROT_READ | PROT_EXEC));
		CHECK(mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start) ==
		      (void *)start);
		return 1;
	}
	return 0;
}

static const struct {
	const char *name;
	void (*each)(void); /* UNITS times */
	void (*once)(void);
} scenarios[] = {
	{"plain", u_plain, NULL},	{"deep", u_deep, NULL},
	{"varargs", u_varargs, NULL},	{"tail", u_tail, NULL},
	{"noreturn", u_noreturn, NULL}, {"proep", u_proep, NULL},
	{"alloca", u_alloca, NULL},	{"vector", u_vector, NULL},
	{"setjmp", u_setjmp, NULL},	{"qsort", u_qsort, NULL},
	{"plt", u_plt, NULL},		{"vdso", u_vdso, NULL},
	{"syscall", u_syscall, NULL},	{"alt", u_alt, NULL},
	{"nested", u_nested, NULL},	{"raise", u_raise, NULL},
	{"vfork", u_vfork, NULL},	{"thread", NULL, u_start_thread},
	{"clone", NULL, u_start_clone},
#ifdef __GLIBC__
	{"fiber", NULL, u_start_fiber},
#endif
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

static void u_run(size_t number)
{
	if (scenarios[number].once)
		scenarios[number].once();
	else
		u_each(scenarios[number].each);
}

static int u_options(int argc, char **argv, long *warm)
{
	int at = 1;

	for (; at < argc && argv[at][0] == '-'; at++) {
		if (!strcmp(argv[at], "--memfd")) {
			argv[at] = "--"; /* not once more */
			u_start_again(argv);
		} else if (!strcmp(argv[at], "--huge")) {
			CHECK(dl_iterate_phdr(u_move_text, NULL));
		} else if (!strcmp(argv[at], "--")) {
			continue;
		} else {
			CHECK(at + 1 < argc && !argv[at][2]);
			if (argv[at][1] == 'w')
				*warm = atol(argv[++at]);
			else if (argv[at][1] == 'n')
				units = atol(argv[++at]);
			else if (argv[at][1] == 'd')
				depth = (int)atol(argv[++at]);
			else
				CHECK(!"an option");
		}
	}
	return at;
}

int main(int argc, char **argv)
{
	long warm = 0;
	int at = u_options(argc, argv, &warm);

	u_signals();
	for (long i = 0; i < warm; i++)
		u_warm();
	for (size_t i = 0; at == argc && i < SCENARIOS; i++)
		u_run(i);
	for (; at < argc; at++) {
		size_t i = 0;

		while (i < SCENARIOS && strcmp(scenarios[i].name, argv[at]))
			i++;
		CHECK(i < SCENARIOS);
		u_run(i);
	}
	return 0;
}
