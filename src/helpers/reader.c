// SPDX-License-Identifier: Apache-2.0
/*
 * flyball-reader PARENT: parses what the opener hands it and answers main. No capabilities, a short
 * list of system calls, little memory. It may crash or hang on any file: main blames the job it was
 * at, and starts another. Descriptors: see helpers_wire.h.
 */
#include "helpers_answer.h"
#include "reader_context.h"
#include "reader_debug.h"
#include "reader_packed.h"
#include "reader_scan.h"
#include "reader_table.h"
#include "sandbox.h"

#include "abi/reasons.h"
#include "elf/elf_debug.h"
#include "symbol/symbol_frames.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESS_SPACE_MAX (4UL << 30)	/* DWARF is mapped */
#define DATA_MAX	  (128UL << 20) /* what is not of a file */
#define STACK_MAX	  (64UL << 20)	/* demangling recurses; touched only when used */
#define TRIM_BYTES	  (256U << 10)
/* Together below the deadline. libLLVM-19 takes 0.1 s. */
#define TABLE_CPU_NS  500000000ULL
#define TABLE_READ_NS 300000000ULL
#define LINES_CPU_NS  400000000ULL /* below the deadline for the whole answer */
#define LINES_WALL_NS 600000000ULL

struct job {
	struct wire_request r;
	const char *text;
	const uint64_t *addresses;
	int fds[WIRE_FDS_MAX];
	size_t fd_count;
};

static char packet[WIRE_PACKET_MAX] __attribute__((aligned(8)));
static uint64_t addresses[WIRE_NAMES_MAX];

static uint32_t unnamed_of(int err)
{
	switch (err) {
	case -ENOMEM:
		return FLY_UNNAMED_READER_FAILED;
	case -EOPNOTSUPP:
	case -ENOENT: /* no debug file is the right one */
		return FLY_UNNAMED_NO_SYMBOL;
	default:
		return FLY_UNNAMED_FILE_INVALID;
	}
}

/* Opens the job's file, if it is the one that was mapped. */
static struct elf_file *file_open(const struct job *job, struct buf *out)
{
	const struct wire_request *r = &job->r;
	const struct elf_info *info;
	struct elf_file *elf = NULL;
	struct why why = {""};
	int err = job->fd_count ? elf_open(job->fds[0], &elf, &why)
				: why_set(&why, -EBADMSG, "no descriptor came with the job");

	if (err) {
		helpers_answer_error(
			out, r->op, err,
			err == -EOPNOTSUPP ? FLY_UNNAMED_FILE_INVALID : unnamed_of(err), why.text);
		return NULL;
	}
	info = elf_get_info(elf);
	if (r->build_id_len && r->build_id_len <= ELF_BUILD_ID_MAX &&
	    (info->build_id_len != r->build_id_len ||
	     memcmp(info->build_id, r->build_id, r->build_id_len) != 0)) {
		if (r->is_host_path)
			helpers_answer_error(out, r->op, -ESRCH, FLY_UNNAMED_FILE_GONE,
					     "the file and the process that mapped it are gone");
		else
			helpers_answer_error(out, r->op, -ESTALE, FLY_UNNAMED_FILE_REPLACED,
					     "another file lies at its path now");
		elf_close(elf);
		return NULL;
	}
	return elf;
}

static void queries_free(struct symbol_query *queries, size_t count)
{
	for (size_t i = 0; queries && i < count; i++) {
		mem_free(MEM_SYMBOL, queries[i].name);
		mem_free(MEM_SYMBOL, queries[i].module);
	}
	mem_free(MEM_HELPERS, queries);
}

static void answer_queries(const struct job *job, const struct symbol_query *queries,
			   struct buf *out)
{
	uint32_t none = job->r.op == WIRE_PERFMAP ? FLY_UNNAMED_NOT_IN_MAP : FLY_UNNAMED_NO_SYMBOL;
	size_t count = job->r.count;
	struct helpers_name *names = mem_array(MEM_HELPERS, count, sizeof(*names));

	if (!names) {
		helpers_answer_error(out, job->r.op, -ENOMEM, FLY_UNNAMED_READER_FAILED,
				     "out of memory");
		return;
	}
	for (size_t i = 0; i < count; i++) {
		const struct symbol_query *q = &queries[i];

		/* A name that is empty or says nothing is none. */
		if (q->found && q->name[0])
			names[i] = (struct helpers_name){q->address, 0, q->start, q->name};
		else
			names[i] = (struct helpers_name){q->address, none, 0, ""};
	}
	helpers_answer_names(out, job->r.op, names, count);
	mem_free(MEM_HELPERS, names);
}

static void answer_debug(struct elf_file *elf, struct buf *out)
{
	struct elf_debug_links links = {0};
	bool is_stripped = elf_is_stripped(elf);

	if (is_stripped)
		elf_debug_links_read(elf, &links, NULL);
	helpers_answer_debug(out, is_stripped, links.name);
}

static void serve_names(const struct job *job, struct buf *out)
{
	size_t count = job->r.count;
	struct symbol_query *queries;
	struct elf_file *elf = NULL;
	struct why why = {""};
	int err = -ENOMEM;

	if (job->r.op == WIRE_NAMES || job->r.op == WIRE_DEBUG) {
		elf = file_open(job, out);
		if (!elf)
			return;
	}
	queries = mem_array(MEM_HELPERS, count, sizeof(*queries));
	if (queries) {
		for (size_t i = 0; i < count; i++)
			queries[i].address = job->addresses[i];
		if (job->r.op == WIRE_PERFMAP)
			err = symbol_lookup_perfmap(job->fd_count ? job->fds[0] : -1, queries,
						    count, NULL, &why);
		else if (job->r.op == WIRE_DEBUG)
			err = reader_debug_lookup(elf, job->fds + 1, job->fd_count - 1,
						  job->r.files >> 1, queries, count, &why);
		else if (job->r.op == WIRE_FETCHED)
			err = reader_fetched_lookup(job->fd_count ? job->fds[0] : -1,
						    job->r.build_id, job->r.build_id_len, queries,
						    count, &why);
		else if (elf)
			err = symbol_lookup_file(elf, queries, count, &why);
		else
			err = symbol_lookup_vdso(queries, count, &why);
	}
	if (err)
		helpers_answer_error(out, job->r.op, err, unnamed_of(err), why.text);
	else
		answer_queries(job, queries, out);
	if (!err && job->r.op == WIRE_NAMES)
		answer_debug(elf, out);
	queries_free(queries, count);
	elf_close(elf);
}

/* Of what the symbol file of this program, or of its debug file, is made; then the symbol file. */
static void serve_pack(const struct job *job, struct buf *out)
{
	bool is_debug = wire_is_debug(job->r.op);
	bool is_made = job->r.op == WIRE_PACK || job->r.op == WIRE_DEBUG_PACK;
	struct elf_file *elf = file_open(job, out), *debug = NULL;
	size_t count = job->fd_count - is_made, chosen = 0;
	uint8_t digest[ELF_BLAKE2B_BYTES];
	struct why why = {""};
	int err = 0;

	if (!elf)
		return;
	if (is_made && job->fd_count < 2)
		err = why_set(&why, -EBADMSG, "no descriptor to fill came with the job");
	else if (is_debug)
		err = reader_debug_open(elf, job->fds + 1, count - 1, job->r.files >> 1, &debug,
					&chosen, &why);
	if (!err && is_made)
		err = reader_packed_make(elf, job->fds[is_debug ? 1 + chosen : 0], is_debug,
					 job->fds[count], digest, &why);
	else if (!err)
		err = elf_source_digest(debug ? debug : elf, digest, &why);
	if (err)
		helpers_answer_error(out, job->r.op, err, unnamed_of(err), why.text);
	else
		helpers_answer_digest(out, job->r.op, digest);
	elf_close(debug);
	elf_close(elf);
	malloc_trim(0);
}

static void serve_packed(const struct job *job, struct buf *out)
{
	const struct symbol_packed_header *header;
	const struct symbol_packed *packed;
	struct symbol_query *queries;
	size_t count = job->r.count;
	struct why why = {""};
	int err = reader_packed_get(job->fd_count ? job->fds[0] : -1, job->r.digest, &packed, &why);

	if (err) {
		helpers_answer_error(out, job->r.op, err, unnamed_of(err), why.text);
		return;
	}
	header = symbol_packed_get_header(packed);
	if (job->r.op == WIRE_PACKED_INFO) {
		helpers_answer_info(out, job->r.op, &header->info);
		return;
	}
	queries = mem_array(MEM_HELPERS, count, sizeof(*queries));
	for (size_t i = 0; queries && i < count; i++)
		queries[i].address = job->addresses[i];
	err = queries ? symbol_packed_lookup(packed, queries, count, &why) : -ENOMEM;
	if (err)
		helpers_answer_error(out, job->r.op, err, unnamed_of(err), why.text);
	else
		answer_queries(job, queries, out);
	if (!err)
		helpers_answer_debug(out, header->is_stripped, header->link);
	queries_free(queries, count);
}

/* Where the job's lines are: in the file, its debug file or what was fetched; *ret_own is to be
 * closed as well when it is another. */
static int lines_open(const struct job *job, struct buf *out, struct elf_file **ret,
		      struct elf_file **ret_own, struct why *why)
{
	size_t chosen;

	*ret_own = *ret = NULL;
	if (job->r.op == WIRE_FETCHED_LINES)
		return reader_fetched_open(job->fd_count ? job->fds[0] : -1, job->r.build_id,
					   job->r.build_id_len, ret, why);
	*ret_own = file_open(job, out);
	if (!*ret_own)
		return -EBADMSG;
	*ret = *ret_own;
	if (job->r.op == WIRE_DEBUG_LINES)
		/* The file itself, if it has a supplement and no debug file. */
		(void)reader_debug_open(*ret_own, job->fds + 1, job->fd_count - 1,
					job->r.files >> 1, ret, &chosen, why);
	return 0;
}

static void serve_lines(const struct job *job, struct buf *out)
{
	static const struct symbol_frames_limits limits = {LINES_CPU_NS, LINES_WALL_NS};
	struct elf_file *elf, *own, *supplement = NULL;
	struct symbol_frames *frames = NULL;
	char text[WIRE_TEXT_MAX] = "";
	struct why why = {""};
	int err = lines_open(job, out, &elf, &own, &why);

	if (!err) {
		reader_debug_supplement(elf, job->fds, job->fd_count, &supplement, text,
					sizeof(text));
		err = symbol_frames_new(job->addresses, job->r.count, &frames);
		if (!err)
			err = symbol_frames_find(elf, supplement, &limits, frames, &why);
	}
	if (out->len) /* file_open said why */
		;
	else if (err == -ENOENT)
		helpers_answer_error(out, job->r.op, err, FLY_UNNAMED_NO_LINES, why.text);
	else if (err)
		helpers_answer_error(out, job->r.op, err, FLY_UNNAMED_LINES_LIMIT, why.text);
	else
		helpers_answer_lines(out, job->r.op, frames, text);
	symbol_frames_free(frames);
	elf_close(supplement);
	if (elf != own)
		elf_close(elf);
	elf_close(own);
	malloc_trim(0);
}

static uint32_t untabled_of(int err)
{
	switch (err) {
	case -ENOMEM:
		return FLY_UNNAMED_READER_FAILED;
	case -EAGAIN:
		return FLY_UNNAMED_READ_TIMEOUT;
	default:
		return FLY_UNNAMED_FILE_INVALID;
	}
}

static void serve_table(const struct job *job, struct buf *out)
{
	struct elf_file *elf = NULL;
	const struct reader_table_limits limits = {job->addresses[0], TABLE_CPU_NS, TABLE_READ_NS};
	struct unwind_table *table = NULL;
	struct why why = {""};
	uint8_t hash[32];
	int err;

	if (job->r.count != 1) {
		helpers_answer_error(out, job->r.op, -EINVAL, FLY_UNNAMED_READER_FAILED, "");
		return;
	}
	if (job->r.op == WIRE_TABLE) {
		elf = file_open(job, out);
		if (!elf)
			return;
		err = reader_table(job->fds[0], &limits, &table, hash, &why);
	} else {
		err = reader_vdso_table(job->addresses[0], &table, hash, &why);
	}
	if (err)
		helpers_answer_error(out, job->r.op, err, untabled_of(err), why.text);
	else
		helpers_answer_table(out, job->r.op, table, hash);
	unwind_table_free(table);
	elf_close(elf);
	malloc_trim(0);
}

static void serve_inspect(const struct job *job, struct buf *out)
{
	struct elf_file *elf = file_open(job, out);

	if (!elf)
		return;
	helpers_answer_info(out, job->r.op, elf_get_info(elf));
	elf_close(elf);
}

/* Descriptors that are not there are -1 in fds. */
static void spread(const struct job *job, int *fds, size_t count)
{
	size_t at = 0;

	for (size_t i = 0; i < count; i++)
		fds[i] = job->r.files >> i & 1 && at < job->fd_count ? job->fds[at++] : -1;
}

static void serve_scan(const struct job *job, struct buf *out)
{
	int fds[WIRE_FILES_MAX];

	spread(job, fds, ARRAY_SIZE(fds));
	reader_scan(&job->r, fds, job->text, out);
}

static void serve_context(const struct job *job, struct buf *out)
{
	int fds[READER_CONTEXT_FILES];

	spread(job, fds, ARRAY_SIZE(fds));
	reader_context(fds, job->text, out);
}

static void serve(const struct job *job, struct buf *out)
{
	switch (job->r.op) {
	case WIRE_INSPECT:
		serve_inspect(job, out);
		break;
	case WIRE_SCAN:
		serve_scan(job, out);
		break;
	case WIRE_CONTEXT:
		serve_context(job, out);
		break;
	case WIRE_LINES:
	case WIRE_DEBUG_LINES:
	case WIRE_FETCHED_LINES:
		serve_lines(job, out);
		break;
	case WIRE_PACK_DIGEST:
	case WIRE_DEBUG_DIGEST:
	case WIRE_PACK:
	case WIRE_DEBUG_PACK:
		serve_pack(job, out);
		break;
	case WIRE_PACKED_NAMES:
	case WIRE_PACKED_INFO:
		serve_packed(job, out);
		break;
	case WIRE_TABLE:
	case WIRE_VDSO_TABLE:
		serve_table(job, out);
		break;
	default:
		serve_names(job, out);
		break;
	}
	if (out->err) {
		buf_reset(out);
		helpers_answer_error(out, job->r.op, -ENOMEM, FLY_UNNAMED_READER_FAILED,
				     "the answer is too large");
	}
}

static int send_part(uint64_t ticket, const char *data, size_t bytes, bool is_last,
		     uint64_t spent_ns)
{
	struct wire_part part = {ticket, (uint32_t)bytes, is_last, spent_ns};
	struct iovec parts[2] = {{&part, sizeof(part)}, {(void *)data, bytes}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	ssize_t n;

	do {
		n = sendmsg(WIRE_READER_ANSWERS, &message, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int send_answer(uint64_t ticket, const struct buf *out, uint64_t spent_ns)
{
	size_t at = 0;
	int err;

	do {
		size_t n = out->len - at < WIRE_PART_MAX ? out->len - at : WIRE_PART_MAX;

		err = send_part(ticket, out->data + at, n, at + n == out->len, spent_ns);
		at += n;
	} while (!err && at < out->len);
	return err;
}

/* False at the end of the stream. */
static bool job_receive(struct job *job)
{
	char control[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)] __attribute__((aligned(8)));
	struct iovec part = {packet, sizeof(packet)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	size_t used;
	ssize_t n;

	memset(job, 0, sizeof(*job));
	do {
		n = recvmsg(WIRE_READER_JOBS, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(job->r))
		return false;
	c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		job->fd_count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(job->fds, CMSG_DATA(c), job->fd_count * sizeof(int));
	}
	memcpy(&job->r, packet, sizeof(job->r));
	used = sizeof(job->r) + job->r.text_bytes;
	if (!job->r.text_bytes || used > (size_t)n || packet[used - 1] ||
	    job->r.count > WIRE_NAMES_MAX || used + job->r.count * sizeof(uint64_t) != (size_t)n)
		return false;
	job->text = packet + sizeof(job->r);
	memcpy(addresses, packet + used, job->r.count * sizeof(uint64_t));
	job->addresses = addresses;
	return true;
}

static int confine(int parent, struct why *why)
{
	static const struct sandbox_rule rules[] = {
		{SCMP_SYS(read), -1, 0, 0},
		{SCMP_SYS(pread64), -1, 0, 0},
		{SCMP_SYS(pwrite64), -1, 0, 0}, /* symbol files */
		{SCMP_SYS(fstat), -1, 0, 0},
		{SCMP_SYS(fstatfs), -1, 0, 0},
		{SCMP_SYS(newfstatat), 3, AT_EMPTY_PATH, AT_EMPTY_PATH},
		{SCMP_SYS(recvmsg), -1, 0, 0},
		{SCMP_SYS(sendmsg), -1, 0, 0},
		{SCMP_SYS(close), -1, 0, 0},
		{SCMP_SYS(brk), -1, 0, 0},
		{SCMP_SYS(mmap), 2, PROT_EXEC, 0},
		{SCMP_SYS(mremap), -1, 0, 0},
		{SCMP_SYS(munmap), -1, 0, 0},
		{SCMP_SYS(madvise), -1, 0, 0},
		{SCMP_SYS(futex), -1, 0, 0},
		{SCMP_SYS(sysinfo), -1, 0, 0},
		{SCMP_SYS(clock_gettime), -1, 0, 0},
		{SCMP_SYS(restart_syscall), -1, 0, 0},
		{SCMP_SYS(rt_sigreturn), -1, 0, 0},
		{SCMP_SYS(exit_group), -1, 0, 0},
	};
	static const struct sandbox_rule refused[] = {
		/* libdw looks for split and supplementary files by itself. It finds none. */
		{SCMP_SYS(open), -1, 0, 0},	{SCMP_SYS(openat), -1, 0, 0},
		{SCMP_SYS(readlink), -1, 0, 0}, {SCMP_SYS(readlinkat), -1, 0, 0},
		{SCMP_SYS(getcwd), -1, 0, 0},	{SCMP_SYS(stat), -1, 0, 0},
		{SCMP_SYS(lstat), -1, 0, 0},	{SCMP_SYS(newfstatat), 3, AT_EMPTY_PATH, 0},
		{SCMP_SYS(fcntl), -1, 0, 0},
	};
	struct rlimit space = {ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX}, stack;
	struct rlimit data = {DATA_MAX, DATA_MAX};
	struct rlimit file = {SYMBOL_PACKED_BYTES_MAX, SYMBOL_PACKED_BYTES_MAX};
	int err;

	if (!sandbox_is_sanitized()) {
		setrlimit(RLIMIT_AS, &space);
		setrlimit(RLIMIT_DATA, &data);
	}
	setrlimit(RLIMIT_FSIZE, &file);
	signal(SIGXFSZ, SIG_IGN);
	if (!getrlimit(RLIMIT_STACK, &stack)) {
		stack.rlim_cur = stack.rlim_max < STACK_MAX ? stack.rlim_max : STACK_MAX;
		setrlimit(RLIMIT_STACK, &stack);
	}
	err = symbol_demangle_guard();
	if (err)
		return why_set(why, err, "setitimer: %s", strerror(-err));
	err = sandbox_drop(NULL, 0, why);
	if (!err)
		err = sandbox_follow_parent(parent, why);
	if (!err)
		err = sandbox_filter_refusing(rules, ARRAY_SIZE(rules), refused,
					      ARRAY_SIZE(refused), why);
	return err;
}

int main(int argc, char **argv)
{
	struct buf out;
	struct why why = {""};
	uint64_t parent;
	struct job job;
	int err;

	if (argc != 2 || text_parse_u64(argv[1], 1, INT32_MAX, &parent))
		return 2;
	err = sandbox_start(WIRE_READER_ANSWERS, (int)parent, &why);
	if (!err)
		err = confine((int)parent, &why);
	/* The first answer, ticket 0: ready, or why not. */
	send_part(WIRE_TICKET_NONE, why.text, err ? strlen(why.text) : 0, true, 0);
	if (err)
		return 1;
	buf_init(&out, MEM_HELPERS, WIRE_ANSWER_MAX);
	while (job_receive(&job)) {
		uint64_t began = clock_monotonic_ns();
		bool is_large;

		serve(&job, &out);
		/* Closing may hang as well (FUSE): do it while the job is still ours. */
		for (size_t i = 0; i < job.fd_count; i++)
			close(job.fds[i]);
		if (send_answer(job.r.ticket, &out, clock_monotonic_ns() - began))
			break;
		is_large = out.cap > TRIM_BYTES;
		buf_reset(&out);
		if (is_large) {
			buf_done(&out);
			buf_init(&out, MEM_HELPERS, WIRE_ANSWER_MAX);
			malloc_trim(0);
		}
	}
	return 0;
}
