// SPDX-License-Identifier: Apache-2.0
/*
 * What a process maps. Files are opened and read here, in this process, which a hung file system
 * can stop: that is borne by a command that looks at one process, by hand, and holds nothing of it.
 */
#include "cli_unwind_stack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "elf/elf.h"
#include "symbol/symbol.h"

#define STAT_FLAGS	 9
#define STAT_STACK_START 28
#define KERNEL_THREAD	 0x00200000 /* PF_KTHREAD */

struct line {
	uint64_t start, end, offset, ino;
	unsigned int dev_major, dev_minor;
	char perms[5];
	char *path; /* to its newline */
};

int cli_unwind_read(void *ctx, uint64_t offset, void *out, size_t bytes)
{
	uint8_t *p = out;

	while (bytes) {
		ssize_t n = pread(*(int *)ctx, p, bytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EBADMSG;
		p += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Also of a deleted file, and of one in another mount namespace. */
static int file_open(pid_t pid, const struct line *line)
{
	char path[128];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, line->start,
		 line->end);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		char below[4352];

		snprintf(below, sizeof(below), "/proc/%d/root%s", pid, line->path);
		fd = open(below, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	}
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_ino != line->ino)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* The image of the vDSO as a file, for libdw. */
static int vdso_open(void)
{
	size_t bytes = 0;
	const void *image = symbol_vdso_image(&bytes);
	int fd = image ? memfd_create("vdso", MFD_CLOEXEC) : -1;

	if (fd >= 0 && write(fd, image, bytes) != (ssize_t)bytes) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int table_make(struct cli_picture *p, struct cli_file *file)
{
	struct unwind_source source = {.read = cli_unwind_read, .ctx = &file->fd};
	struct unwind_table *table;
	struct stat st;
	int number;

	file->table = FLY_TABLE_FRAME_POINTERS;
	if (file->fd < 0 || fstat(file->fd, &st))
		return 0;
	source.bytes = (uint64_t)st.st_size;
	/* A file without call frame information is walked by frame pointers. */
	if (unwind_table_build(&source, NULL, &table, NULL))
		return 0;
	number = unwind_space_add_table(p->space, table);
	unwind_table_free(table);
	if (number < 0)
		return number;
	file->table = (uint32_t)number;
	return 0;
}

static int bias_find(const struct line *line, int fd, uint64_t *ret)
{
	struct elf_file *elf;
	uint64_t vaddr = 0;
	int err = elf_open(fd, &elf, NULL);

	if (err)
		return err;
	err = elf_offset_to_vaddr(elf_get_info(elf), line->offset, &vaddr);
	elf_close(elf);
	if (!err)
		*ret = line->start - vaddr;
	return err;
}

/* One per file and bias. */
static int file_add(struct cli_picture *p, pid_t pid, const struct line *line, uint32_t *ret)
{
	bool is_vdso = !strcmp(line->path, "[vdso]");
	struct cli_file file = {.ino = line->ino,
				.dev = makedev(line->dev_major, line->dev_minor),
				.bias = line->start,
				.fd = -1};
	const char *name = strrchr(line->path, '/');
	int err;

	if (is_vdso)
		file.fd = vdso_open();
	else if (line->ino)
		file.fd = file_open(pid, line);
	if (!is_vdso && file.fd >= 0 && bias_find(line, file.fd, &file.bias)) {
		close(file.fd);
		file.fd = -1;
	}
	for (size_t i = 0; i < p->file_count && line->ino; i++) {
		const struct cli_file *f = &p->files[i];

		if (f->ino == file.ino && f->dev == file.dev && f->bias == file.bias) {
			if (file.fd >= 0)
				close(file.fd);
			*ret = (uint32_t)i;
			return 0;
		}
	}
	name = name ? name + 1 : line->path;
	text_print(name, strlen(name), file.name, sizeof(file.name));
	err = table_make(p, &file);
	if (!err)
		err = mem_grow(MEM_BASE, (void **)&p->files, &p->files_cap, p->file_count + 1,
			       FLY_MAPPINGS_MAX, sizeof(*p->files));
	if (err) {
		if (file.fd >= 0)
			close(file.fd);
		return err;
	}
	p->files[p->file_count] = file;
	*ret = (uint32_t)p->file_count++;
	return 0;
}

static int line_take(struct cli_picture *p, pid_t pid, char *text)
{
	struct line line;
	uint32_t file;
	int at = 0, err;

	if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n",
		   &line.start, &line.end, line.perms, &line.offset, &line.dev_major,
		   &line.dev_minor, &line.ino, &at) < 7 ||
	    !at || line.perms[2] != 'x' || line.start >= 1ULL << 47)
		return 0;
	line.path = text + at;
	line.path[strcspn(line.path, "\n")] = 0;
	err = file_add(p, pid, &line, &file);
	if (!err)
		err = mem_grow(MEM_BASE, (void **)&p->mappings, &p->mappings_cap,
			       p->mapping_count + 1, FLY_MAPPINGS_MAX, sizeof(*p->mappings));
	if (!err)
		p->mappings[p->mapping_count++] = (struct cli_mapping){line.start, line.end, file};
	return err;
}

static int mappings_set(struct cli_picture *p)
{
	struct fly_mapping *m = mem_array(MEM_BASE, p->mapping_count, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	for (size_t i = 0; i < p->mapping_count; i++) {
		const struct cli_mapping *from = &p->mappings[i];
		const struct cli_file *file = &p->files[from->file];

		m[i] = fly_mapping_make(from->start, from->end - from->start, file->bias,
					file->table);
	}
	err = unwind_space_set_mappings(p->space, m, (uint32_t)p->mapping_count);
	mem_free(MEM_BASE, m);
	return err;
}

/* A field of /proc/PID/stat behind the name; 0 when it is not told. */
static uint64_t stat_field(pid_t pid, int number)
{
	char path[64], text[2048];
	uint64_t value = 0;
	const char *at;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = 0;
	at = strrchr(text, ')');
	for (int field = 2; at && field < number; field++)
		at = strchr(at + 1, ' ');
	if (at)
		value = strtoull(at + 1, NULL, 10);
	return value;
}

int cli_picture_open(pid_t pid, struct cli_picture *p, struct why *why)
{
	char path[64], *text = NULL;
	size_t size = 0;
	FILE *maps;
	int err;

	*p = (struct cli_picture){0};
	if (stat_field(pid, STAT_FLAGS) & KERNEL_THREAD)
		return why_set(why, -EOPNOTSUPP, "%d is a kernel thread: it has no user stack",
			       pid);
	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	if (!maps)
		return why_set(why, -errno, "%s: %s", path, strerror(errno));
	err = unwind_space_new(&p->space);
	while (!err && getline(&text, &size, maps) > 0)
		err = line_take(p, pid, text);
	free(text);
	fclose(maps);
	if (!err)
		err = mappings_set(p);
	p->stack_start = stat_field(pid, STAT_STACK_START);
	if (!err && !p->mapping_count)
		err = -ESRCH;
	if (err) {
		cli_picture_close(p);
		return why_set(why, err, "reading what process %d maps: %s", pid, strerror(-err));
	}
	return 0;
}

void cli_picture_close(struct cli_picture *p)
{
	for (size_t i = 0; i < p->file_count; i++) {
		if (p->files[i].fd >= 0)
			close(p->files[i].fd);
	}
	mem_free(MEM_BASE, p->files);
	mem_free(MEM_BASE, p->mappings);
	unwind_space_free(p->space);
	*p = (struct cli_picture){0};
}

const struct cli_mapping *cli_picture_find(const struct cli_picture *p, uint64_t address)
{
	size_t low = 0, high = p->mapping_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (address >= p->mappings[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	return low < p->mapping_count && address >= p->mappings[low].start ? &p->mappings[low]
									   : NULL;
}
