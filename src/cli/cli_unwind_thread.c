// SPDX-License-Identifier: Apache-2.0
/*
 * A thread made to stand still, and its memory. What is read is kept, so that whoever reads it
 * again sees what the first reader saw, also when the thread runs on meanwhile.
 */
#include "cli_unwind_stack.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#define PAGE_BYTES  4096U
#define PAGES_MAX   8192U /* 32 MiB */
#define SLOTS	    (2 * PAGES_MAX)
#define AHEAD_PAGES 16U		   /* read in one go */
#define STACK_BYTES (256ULL << 10) /* kept before the thread goes on */
#define RED_ZONE    128U
#define STOP_S	    2

int cli_memory_init(struct cli_memory *memory, pid_t pid)
{
	*memory = (struct cli_memory){.pid = pid};
	memory->pages = mem_array(MEM_BASE, SLOTS, sizeof(*memory->pages));
	return memory->pages ? 0 : -ENOMEM;
}

void cli_memory_end(struct cli_memory *memory)
{
	memory->pid = 0;
}

void cli_memory_done(struct cli_memory *memory)
{
	for (size_t i = 0; memory->pages && i < SLOTS; i++)
		mem_free(MEM_BASE, memory->pages[i].data);
	mem_free(MEM_BASE, memory->pages);
	*memory = (struct cli_memory){0};
}

/* The page's slot, or the free one where it would be. */
static struct cli_page *slot_of(struct cli_memory *memory, uint64_t address)
{
	uint64_t at = (address / PAGE_BYTES) * 0x9e3779b97f4a7c15ULL >> 32;

	while (memory->pages[at % SLOTS].data && memory->pages[at % SLOTS].address != address)
		at++;
	return &memory->pages[at % SLOTS];
}

void cli_memory_keep(struct cli_memory *memory, uint64_t address, const uint8_t *bytes)
{
	struct cli_page *page = slot_of(memory, address);

	if (page->data || memory->count == PAGES_MAX)
		return;
	page->data = mem_alloc(MEM_BASE, PAGE_BYTES);
	if (!page->data)
		return;
	page->address = address;
	memcpy(page->data, bytes, PAGE_BYTES);
	memory->count++;
}

/* The page and those behind it, as far as there are any. */
static void pages_read(struct cli_memory *memory, uint64_t address)
{
	static uint8_t bytes[AHEAD_PAGES * PAGE_BYTES];
	struct iovec local = {bytes, sizeof(bytes)}, remote[AHEAD_PAGES];
	ssize_t got;

	for (size_t i = 0; i < AHEAD_PAGES; i++)
		remote[i] =
			(struct iovec){(void *)(uintptr_t)(address + i * PAGE_BYTES), PAGE_BYTES};
	got = process_vm_readv(memory->pid, &local, 1, remote, AHEAD_PAGES, 0);
	for (size_t i = 0; got > 0 && i < (size_t)got / PAGE_BYTES; i++)
		cli_memory_keep(memory, address + i * PAGE_BYTES, bytes + i * PAGE_BYTES);
}

static const uint8_t *page_get(struct cli_memory *memory, uint64_t address)
{
	const struct cli_page *page = slot_of(memory, address);

	if (!page->data && memory->pid) {
		pages_read(memory, address);
		page = slot_of(memory, address);
	}
	return page->data;
}

int cli_memory_read(void *ctx, uint64_t address, void *out, size_t bytes)
{
	uint8_t *to = out;

	if (address > UINT64_MAX - bytes)
		return -EFAULT;
	while (bytes) {
		size_t at = address % PAGE_BYTES;
		size_t n = bytes < PAGE_BYTES - at ? bytes : PAGE_BYTES - at;
		const uint8_t *page = page_get(ctx, address - at);

		if (!page)
			return -EFAULT;
		memcpy(to, page + at, n);
		to += n;
		address += n;
		bytes -= n;
	}
	return 0;
}

static void stack_keep(struct cli_memory *memory, uint64_t sp)
{
	uint64_t at = (sp - RED_ZONE) & ~(uint64_t)(PAGE_BYTES - 1);

	for (uint64_t end = at + STACK_BYTES; at < end && page_get(memory, at); at += PAGE_BYTES)
		;
}

/* ------------------------------------------------------------------ stopping */

/* Waits for the thread to stand still. *ret_signal: what it was about to be sent, and must get. */
static int wait_stopped(pid_t tid, int *ret_signal)
{
	const struct timespec patience = {.tv_sec = STOP_S};
	sigset_t child, old;
	int status, err = 0;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &old);
	for (;;) {
		pid_t got = waitpid(tid, &status, __WALL | WNOHANG);

		if (got == tid)
			break;
		if (got < 0 && errno != EINTR) {
			err = -errno;
			break;
		}
		/* Each change of state sends one; none in all this time: it does not stop. */
		if (sigtimedwait(&child, NULL, &patience) < 0 && errno == EAGAIN) {
			err = -ETIMEDOUT;
			break;
		}
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (err)
		return err;
	if (!WIFSTOPPED(status))
		return -ESRCH;
	*ret_signal = status >> 16 ? 0 : WSTOPSIG(status);
	return 0;
}

static int registers_read(pid_t tid, const struct cli_picture *picture, struct unwind_thread *ret)
{
	struct user_regs_struct r;

	if (ptrace(PTRACE_GETREGS, tid, NULL, &r))
		return -errno;
	/* In the order of DWARF's numbers. */
	*ret = (struct unwind_thread){
		.pc = r.rip,
		.regs = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10,
			 r.r11, r.r12, r.r13, r.r14, r.r15},
		.stack_start = picture->stack_start,
		.thread_block = r.fs_base,
		.is_in_syscall = (int64_t)r.orig_rax >= 0,
	};
	return r.cs == 0x23 ? -EOPNOTSUPP : 0; /* 32-bit code */
}

int cli_thread_walk(pid_t tid, const struct cli_picture *picture, struct cli_memory *memory,
		    struct unwind_thread *ret_thread, struct unwind_stack *ret, struct why *why)
{
	const struct unwind_memory reads = {.read = cli_memory_read, .ctx = memory};
	int signal = 0, err;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL))
		return why_set(why, -errno, "ptrace of thread %d: %s", tid, strerror(errno));
	err = ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) ? -errno : wait_stopped(tid, &signal);
	if (!err)
		err = registers_read(tid, picture, ret_thread);
	if (!err) {
		stack_keep(memory, ret_thread->regs[7]);
		unwind_walk(picture->space, &reads, ret_thread, UNWIND_FRAMES_MAX, ret);
	}
	cli_memory_end(memory);
	/* One that never stood still is let go when we end. */
	ptrace(PTRACE_DETACH, tid, NULL, (void *)(uintptr_t)signal);
	if (err == -ETIMEDOUT)
		return why_set(why, err, "thread %d does not stop", tid);
	return err ? why_set(why, err, "thread %d: %s", tid, strerror(-err)) : 0;
}
