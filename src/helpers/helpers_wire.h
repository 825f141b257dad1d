/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers, inside: what the three processes say to each other. SOCK_SEQPACKET pairs, one packet
 * per message, native byte order (one build, one machine).
 *
 *   main ─requests─▶ opener      main ◀─acks─ opener
 *   opener ─jobs, descriptors─▶ reader
 *   main ◀─answers, in parts─ reader
 *
 * Main keeps both ends of every pair, so that a helper's replacement goes on reading where the dead
 * one stopped: what was queued is not lost. Requests are worked on strictly in order, hence the
 * oldest one without an ack (or answer) is the one being worked on, and the one to blame.
 */
#ifndef FLYBALL_HELPERS_WIRE_H
#define FLYBALL_HELPERS_WIRE_H

#include "elf/elf_source.h"
#include "helpers.h"

/* Descriptors a helper starts with. */
#define WIRE_OPENER_REQUESTS 3
#define WIRE_OPENER_JOBS     4
#define WIRE_READER_JOBS     3
#define WIRE_READER_ANSWERS  4

#define WIRE_PATH_MAX	 4096 /* with NUL */
#define WIRE_NAMES_MAX	 4096
#define WIRE_TEXT_MAX	 256
#define WIRE_PART_MAX	 32768
#define WIRE_ANSWER_MAX	 (8U << 20)
#define WIRE_CGROUP_MAX	 4096
#define WIRE_COMM_MAX	 64
#define WIRE_PACKET_MAX	 (sizeof(struct wire_request) + WIRE_PATH_MAX + WIRE_NAMES_MAX * 8)
#define WIRE_FILES_MAX	 4 /* of a scan */
#define WIRE_DEBUG_MAX	 5 /* possible debug files of one file */
#define WIRE_FDS_MAX	 7 /* with one packet: a file, these, and what main handed over */
#define WIRE_TICKET_NONE 0 /* a helper's first packet: it is ready */

enum wire_op {
	WIRE_HOLD = 1,
	WIRE_INSPECT,
	WIRE_NAMES,
	WIRE_VDSO,
	WIRE_SCAN,
	WIRE_RELEASE,
	WIRE_PERFMAP_HOLD,
	/* Text: the file's path, then paths of possible debug files, each behind one letter: B by
	 * build-id, L by link, both below the process's root, H by build-id below our own. In the
	 * job: bit i of files is set when descriptor i is by link; descriptor 0 is the file. */
	WIRE_DEBUG,
	WIRE_FETCHED, /* the debug file's descriptor comes with the request */
	WIRE_PERFMAP, /* ino: the stamp of the map that main knows */
	WIRE_LINES,
	WIRE_DEBUG_LINES,   /* as WIRE_DEBUG; possible supplements are among the candidates */
	WIRE_FETCHED_LINES, /* as WIRE_FETCHED */
	/* Symbol files (symbol_packed.h). The first four are of a file, or (as WIRE_DEBUG) of its
	 * debug file. */
	WIRE_PACK_DIGEST, /* what the symbol file must be made of */
	WIRE_DEBUG_DIGEST,
	WIRE_PACK, /* it is made, into the descriptor that comes with the request */
	WIRE_DEBUG_PACK,
	WIRE_PACKED_NAMES, /* out of the symbol file that comes with the request */
	WIRE_PACKED_INFO,  /* what its binary is, as WIRE_INSPECT */
	WIRE_TABLE,	   /* the one address: bytes that the table may take at most */
	WIRE_VDSO_TABLE,
	WIRE_CONTEXT, /* files: bit i set when descriptor i (maps, mem, exe) is there; text: exe */
	WIRE_OPS,
};

/* main to opener; then, with the last three members filled in, opener to reader. Followed by
 * text_bytes of text with its NUL (request: path; scan job: exe) and count addresses. */
struct wire_request {
	uint64_t ticket;
	uint64_t key;
	uint64_t process_start_ns;
	uint64_t start, end, ino;
	uint32_t op, tgid;
	uint32_t text_bytes, count;
	uint8_t build_id_len;
	uint8_t build_id[ELF_BUILD_ID_MAX];
	uint8_t pad[3];
	uint32_t is_host_path; /* found at its path outside the process: a mismatch means gone */
	uint32_t mount_namespace;
	uint32_t
		files; /* scan: bit i set when descriptor i (stat, status, cgroup, maps) is there */
	/* Of what the symbol file must have been made; zeros: of any file that only root could
	 * write. */
	uint8_t digest[ELF_BLAKE2B_BYTES];
};

_Static_assert(sizeof(struct wire_request) == 176, "helpers: wire_request has no padding");

static inline bool wire_is_debug(uint32_t op)
{
	return op == WIRE_DEBUG || op == WIRE_DEBUG_LINES || op == WIRE_DEBUG_DIGEST ||
	       op == WIRE_DEBUG_PACK;
}

static inline bool wire_is_lines(uint32_t op)
{
	return op == WIRE_LINES || op == WIRE_DEBUG_LINES || op == WIRE_FETCHED_LINES;
}

enum wire_ack_state {
	WIRE_ACK_PASSED = 1, /* goes to the reader now */
	WIRE_ACK_DONE,	     /* final */
	WIRE_ACK_BUSY,	     /* was not taken by the reader after all: ask again */
};

/* opener to main */
struct wire_ack {
	uint64_t ticket;
	uint64_t dev, ino, mtime_ns;
	uint32_t state;
	uint32_t is_layered;
	int32_t err;
	uint32_t unnamed;
	char text[WIRE_TEXT_MAX];
};

/* reader to main: part of an answer; the whole is laid out as helpers_answer.c says. */
struct wire_part {
	uint64_t ticket;
	uint32_t bytes;
	uint32_t is_last;
	uint64_t spent_ns; /* the last part: from the job's arrival to the answer */
};

#endif
