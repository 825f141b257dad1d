// SPDX-License-Identifier: Apache-2.0
/* libdw's walk: its own reading of the same files, and memory from where ours came. */
#include "cli_unwind_stack.h"

#include <errno.h>

enum cli_verdict cli_stack_compare(const struct unwind_stack *ours,
				   const struct cli_judgement *libdw, uint32_t *ret_depth)
{
	const struct unwind_stack *theirs = &libdw->stack;

	for (uint32_t i = 0; i < ours->count && i < libdw->judged; i++) {
		if (ours->frames[i] == theirs->frames[i])
			continue;
		/* Its last frame, found before it got lost, proves nothing. */
		if (i + 1 == theirs->count && !theirs->is_whole)
			return CLI_VERDICT_SAME;
		*ret_depth = i;
		return CLI_VERDICT_WRONG;
	}
	*ret_depth = ours->count;
	/* Past our own limit there is no comparing. */
	return ours->count < libdw->judged && ours->count < UNWIND_FRAMES_MAX ? CLI_VERDICT_SHORT
									      : CLI_VERDICT_SAME;
}

#ifdef FLYBALL_LIBDW

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <unistd.h>

struct cli_judge {
	const struct cli_picture *picture;
	Dwfl *dwfl;
	pid_t pid;
	/* Of the walk under way. */
	struct cli_memory *memory;
	const struct unwind_thread *thread;
	struct cli_judgement *found;
	bool is_guessing;
};

/* Nothing is looked for: ours knows no separate debug files either. */
static int no_elf(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
		  char **file_name, Elf **elf)
{
	(void)module, (void)data, (void)name, (void)base, (void)file_name, (void)elf;
	return -1;
}

static int no_debuginfo(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base,
			const char *file_name, const char *link, GElf_Word crc, char **debug_name)
{
	(void)module, (void)data, (void)name, (void)base, (void)file_name, (void)link, (void)crc;
	(void)debug_name;
	return -1;
}

static const Dwfl_Callbacks file_callbacks = {.find_elf = no_elf, .find_debuginfo = no_debuginfo};

static bool thread_get(Dwfl *dwfl, pid_t tid, void *ctx, void **ret)
{
	(void)dwfl, (void)tid;
	*ret = ctx;
	return true;
}

static pid_t thread_next(Dwfl *dwfl, void *ctx, void **arg)
{
	struct cli_judge *judge = ctx;
	bool is_first = !*arg;

	(void)dwfl;
	*arg = judge;
	return is_first ? judge->pid : 0;
}

static bool memory_get(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *ret, void *ctx)
{
	struct cli_judge *judge = ctx;

	(void)dwfl;
	return !cli_memory_read(judge->memory, address, ret, sizeof(*ret));
}

static bool registers_set(Dwfl_Thread *thread, void *ctx)
{
	const struct unwind_thread *t = ((struct cli_judge *)ctx)->thread;
	Dwarf_Word regs[17];

	for (int i = 0; i < 16; i++)
		regs[i] = t->regs[i];
	regs[16] = t->pc;
	return dwfl_thread_state_registers(thread, 0, 17, regs);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = thread_next,
	.get_thread = thread_get,
	.memory_read = memory_get,
	.set_initial_registers = registers_set,
};

static bool has_cfi(Dwfl *dwfl, Dwarf_Addr pc)
{
	Dwfl_Module *module = dwfl_addrmodule(dwfl, pc);
	Dwarf_Frame *frame = NULL;
	Dwarf_Addr bias;
	Dwarf_CFI *cfi;

	cfi = module ? dwfl_module_eh_cfi(module, &bias) : NULL;
	if (!cfi || dwarf_cfi_addrframe(cfi, pc - bias, &frame)) {
		cfi = module ? dwfl_module_dwarf_cfi(module, &bias) : NULL;
		if (!cfi || dwarf_cfi_addrframe(cfi, pc - bias, &frame))
			return false;
	}
	free(frame);
	return true;
}

static int frame_take(Dwfl_Frame *frame, void *ctx)
{
	struct cli_judge *judge = ctx;
	struct cli_judgement *found = judge->found;
	struct unwind_stack *stack = &found->stack;
	Dwarf_Addr pc;
	bool is_activation;

	if (stack->count == UNWIND_FRAMES_MAX || !dwfl_frame_pc(frame, &pc, &is_activation))
		return DWARF_CB_ABORT;
	if (stack->count && !cli_picture_find(judge->picture, pc - !is_activation))
		return DWARF_CB_ABORT;
	stack->frames[stack->count++] = pc;
	found->judged += !judge->is_guessing;
	judge->is_guessing |= !has_cfi(judge->dwfl, pc - !is_activation);
	return DWARF_CB_OK;
}

static int files_report(struct cli_judge *judge)
{
	const struct cli_picture *p = judge->picture;

	dwfl_report_begin(judge->dwfl);
	for (size_t i = 0; i < p->file_count; i++) {
		const struct cli_file *f = &p->files[i];
		int fd = f->fd < 0 ? -1 : dup(f->fd);

		/* It keeps the descriptor of what it takes. */
		if (fd >= 0 && !dwfl_report_elf(judge->dwfl, f->name, f->name, fd, f->bias, true))
			close(fd);
	}
	return dwfl_report_end(judge->dwfl, NULL, NULL);
}

int cli_judge_new(const struct cli_picture *picture, pid_t pid, struct cli_judge **ret,
		  struct why *why)
{
	struct cli_judge *judge = mem_alloc(MEM_BASE, sizeof(*judge));

	if (!judge)
		return why_set(why, -ENOMEM, "out of memory");
	*judge = (struct cli_judge){.picture = picture, .pid = pid};
	judge->dwfl = dwfl_begin(&file_callbacks);
	if (!judge->dwfl || files_report(judge) ||
	    !dwfl_attach_state(judge->dwfl, NULL, pid, &thread_callbacks, judge)) {
		why_set(why, -EBADMSG, "libdw: %s", dwfl_errmsg(-1));
		cli_judge_free(judge);
		return -EBADMSG;
	}
	*ret = judge;
	return 0;
}

void cli_judge_free(struct cli_judge *judge)
{
	if (judge && judge->dwfl)
		dwfl_end(judge->dwfl);
	mem_free(MEM_BASE, judge);
}

int cli_judge_walk(struct cli_judge *judge, struct cli_memory *memory,
		   const struct unwind_thread *thread, struct cli_judgement *ret, struct why *why)
{
	int got;

	judge->memory = memory;
	judge->thread = thread;
	judge->found = ret;
	judge->is_guessing = false;
	ret->judged = ret->stack.count = 0;
	got = dwfl_getthread_frames(judge->dwfl, judge->pid, frame_take, judge);
	ret->stack.is_whole = !got;
	if (!ret->stack.count)
		return why_set(why, -EBADMSG, "libdw: %s", dwfl_errmsg(-1));
	return 0;
}

const char *cli_judge_name(struct cli_judge *judge, uint64_t address)
{
	Dwfl_Module *module = dwfl_addrmodule(judge->dwfl, address);

	return module ? dwfl_module_addrname(module, address) : NULL;
}

#else

int cli_judge_new(const struct cli_picture *picture, pid_t pid, struct cli_judge **ret,
		  struct why *why)
{
	(void)picture, (void)pid, (void)ret;
	return why_set(why, -EOPNOTSUPP, "--stack needs libdw; this flyball was built without it");
}

void cli_judge_free(struct cli_judge *judge)
{
	(void)judge;
}

int cli_judge_walk(struct cli_judge *judge, struct cli_memory *memory,
		   const struct unwind_thread *thread, struct cli_judgement *ret, struct why *why)
{
	(void)judge, (void)memory, (void)thread, (void)ret;
	return why_set(why, -EOPNOTSUPP, "built without libdw");
}

const char *cli_judge_name(struct cli_judge *judge, uint64_t address)
{
	(void)judge, (void)address;
	return NULL;
}

#endif
