// SPDX-License-Identifier: Apache-2.0
/* Demangling within bounds. Substitutions make 197 mangled bytes grow to 138 MB of text, so the
 * callback interfaces are used, which allocate nothing but stack, and are left by longjmp from the
 * callback as soon as the output is full. What works on without output is left from a timer's
 * signal in the same way (nothing is held there that would be lost: no heap, no lock). libiberty's
 * own limit on recursion stays on. */
#include "symbol.h"

#include <errno.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#define OPTIONS	      (DMGL_PARAMS | DMGL_ANSI)
#define MANGLED_MAX   4096
#define GUARD_TICK_US 50000

struct output {
	char text[SYMBOL_NAME_MAX + 1];
	size_t len;
	bool is_cut;
	jmp_buf leave;
};

/* The name being worked on, for the signal; ticks it has seen. */
static struct output *volatile guarded;
static volatile sig_atomic_t guarded_ticks;
static bool has_guard;

static void take(const char *part, size_t len, void *opaque)
{
	struct output *out = opaque;
	size_t room = sizeof(out->text) - 1 - out->len;

	if (!len)
		return; /* libiberty gives NULL then */
	if (len > room) {
		memcpy(out->text + out->len, part, room);
		out->len += room;
		out->is_cut = true;
		longjmp(out->leave, 1);
	}
	memcpy(out->text + out->len, part, len);
	out->len += len;
}

static void on_tick(int number)
{
	(void)number;
	if (guarded && ++guarded_ticks >= 2)
		longjmp(guarded->leave, 2);
}

int symbol_demangle_guard(void)
{
	/* SA_NODEFER: leaving by longjmp must not leave the signal blocked. */
	struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_NODEFER | SA_RESTART};
	struct itimerval every = {{0, GUARD_TICK_US}, {0, GUARD_TICK_US}};

	if (sigaction(SIGVTALRM, &action, NULL) || setitimer(ITIMER_VIRTUAL, &every, NULL))
		return -errno;
	has_guard = true;
	return 0;
}

static int demangle_any(const char *mangled, struct output *out)
{
	int ok = 0;

	if (mangled[0] == '_' && (mangled[1] == 'R' || mangled[1] == 'Z'))
		ok = rust_demangle_callback(mangled, OPTIONS, take, out);
	if (!ok && mangled[0] == '_' && mangled[1] == 'Z') {
		out->len = 0;
		ok = cplus_demangle_v3_callback(mangled, OPTIONS, take, out);
	}
	return ok;
}

/* True when out holds a demangled name, whole or cut. */
static bool demangle_bounded(const char *mangled, struct output *out)
{
	volatile bool is_done = false;

	out->len = 0;
	out->is_cut = false;
	switch (setjmp(out->leave)) {
	case 0:
		if (has_guard) {
			guarded_ticks = 0;
			guarded = out;
		}
		is_done = demangle_any(mangled, out);
		break;
	case 1:
		is_done = true;
		break;
	default:
		break;
	}
	guarded = NULL;
	return is_done && out->len;
}

/* Copies printable; what does not fit ends in "…". */
static void print_cut(const char *text, size_t len, bool is_cut, char *out, size_t out_size)
{
	static const char more[] = "\xe2\x80\xa6";
	size_t n, room = sizeof(more) - 1;

	n = text_print(text, len, out, out_size);
	/* text_print says nothing of a cut; with room for one more character it had none. */
	if ((!is_cut && n + 4 < out_size) || out_size <= room + 1)
		return;
	if (!is_cut) {
		char probe[SYMBOL_NAME_MAX + 16];

		if (out_size + 8 > sizeof(probe) || text_print(text, len, probe, out_size + 8) == n)
			return;
	}
	n = text_print(text, len, out, out_size - room);
	memcpy(out + n, more, sizeof(more));
}

void symbol_demangle(const char *mangled, char *out, size_t out_size)
{
	size_t len = strlen(mangled);
	struct output text;

	if (!out_size)
		return;
	if (len <= MANGLED_MAX && demangle_bounded(mangled, &text))
		print_cut(text.text, text.len, text.is_cut, out, out_size);
	else
		print_cut(mangled, len, false, out, out_size);
}
