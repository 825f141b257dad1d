// SPDX-License-Identifier: Apache-2.0
/* http_listen: sockets and the files that guard them. */
#include "http_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG	      64
#define PEM_BYTES_MAX (256 << 10)

/* ---------------------------------------------------------------- the Unix socket */

static bool is_answered(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool is_there = fd >= 0 &&
			(!connect(fd, (const void *)address, sizeof(*address)) || errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return is_there;
}

/* A file that is no socket is somebody else's, and stays. */
static int clear_path(const struct sockaddr_un *address, struct why *why)
{
	struct stat st;

	if (lstat(address->sun_path, &st))
		return 0;
	if (!S_ISSOCK(st.st_mode))
		return why_set(why, -EEXIST, "%s is there and is no socket", address->sun_path);
	if (is_answered(address))
		return why_set(why, -EADDRINUSE, "another agent listens on %s", address->sun_path);
	return unlink(address->sun_path) ? why_set(why, -errno, "cannot replace %s: %s",
						   address->sun_path, strerror(errno))
					 : 0;
}

/* /run is empty after each boot. */
static void make_parent(const char *path)
{
	char parent[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return;
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	mkdir(parent, 0755);
}

int http_listen_unix(const char *path, struct why *why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int fd, err;

	if (strlen(path) >= sizeof(address.sun_path))
		return why_set(why, -ENAMETOOLONG, "the path of socket %.40s... is too long", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	make_parent(path);
	err = clear_path(&address, why);
	if (err)
		return err;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return why_set(why, -errno, "no socket: %s", strerror(errno));
	mask = umask(0117);
	err = bind(fd, (const void *)&address, sizeof(address)) ? -errno : 0;
	umask(mask);
	if (!err && listen(fd, BACKLOG))
		err = -errno;
	if (err) {
		close(fd);
		return why_set(why, err, "cannot listen on %s: %s", path, strerror(-err));
	}
	return fd;
}

/* ---------------------------------------------------------------- TCP */

union any_address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* The host without brackets; *ret_port is what stands behind its colon, or NULL. */
static bool split(const char *text, char *host, size_t host_size, const char **ret_port)
{
	const char *end, *colon;
	size_t len;

	if (*text == '[') {
		text++;
		end = strchr(text, ']');
		if (!end || (end[1] && end[1] != ':'))
			return false;
		colon = end[1] ? end + 1 : NULL;
	} else {
		colon = strchr(text, ':');
		end = colon ? colon : text + strlen(text);
	}
	len = (size_t)(end - text);
	if (!len || len >= host_size)
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	*ret_port = colon ? colon + 1 : NULL;
	return true;
}

static int parse_address(const char *text, union any_address *ret, socklen_t *ret_len)
{
	char host[64];
	const char *port;
	uint64_t number;

	memset(ret, 0, sizeof(*ret));
	if (!split(text, host, sizeof(host), &port) || !port ||
	    text_parse_u64(port, 0, 65535, &number))
		return -EINVAL;
	if (inet_pton(AF_INET, host, &ret->in.sin_addr) == 1) {
		ret->in.sin_family = AF_INET;
		ret->in.sin_port = htons((uint16_t)number);
		*ret_len = sizeof(ret->in);
		return 0;
	}
	if (inet_pton(AF_INET6, host, &ret->in6.sin6_addr) == 1) {
		ret->in6.sin6_family = AF_INET6;
		ret->in6.sin6_port = htons((uint16_t)number);
		*ret_len = sizeof(ret->in6);
		return 0;
	}
	return -EINVAL;
}

static bool is_loopback(const union any_address *a)
{
	if (a->any.sa_family == AF_INET)
		return ntohl(a->in.sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
}

int http_listen_tcp(const char *address, bool is_guarded, struct why *why)
{
	union any_address a;
	socklen_t len;
	int fd, one = 1, err;

	if (parse_address(address, &a, &len))
		return why_set(why, -EINVAL,
			       "%s is no address: give IP:PORT, as 127.0.0.1:7777 or [::1]:7777",
			       address);
	if (!is_guarded && !is_loopback(&a))
		return why_set(why, -EACCES,
			       "%s can be reached from other machines: that needs a token file and "
			       "a certificate with its key",
			       address);
	fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return why_set(why, -errno, "no socket: %s", strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	err = bind(fd, &a.any, len) || listen(fd, BACKLOG) ? -errno : 0;
	if (err) {
		close(fd);
		return why_set(why, err, "cannot listen on %s: %s", address, strerror(-err));
	}
	return fd;
}

bool http_names_us(const char *value, const char *address)
{
	char host[128], ours[128];
	const char *port;
	union any_address a;

	if (!strncasecmp(value, "http://", 7))
		value += 7;
	else if (!strncasecmp(value, "https://", 8))
		value += 8;
	if (!split(value, host, sizeof(host), &port))
		return false;
	if (!strcasecmp(host, "localhost"))
		return true;
	memset(&a, 0, sizeof(a));
	if (inet_pton(AF_INET, host, &a.in.sin_addr) == 1)
		a.any.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, host, &a.in6.sin6_addr) == 1)
		a.any.sa_family = AF_INET6;
	else
		return false;
	return is_loopback(&a) ||
	       (address && split(address, ours, sizeof(ours), &port) && !strcmp(host, ours));
}

/* ---------------------------------------------------------------- files */

static int token_make(const char *path, char token[HTTP_TOKEN_BYTES + 1], struct why *why)
{
	uint8_t random[HTTP_TOKEN_BYTES / 2];
	int fd;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return why_set(why, -EIO, "no random bytes for a token");
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(token + 2 * i, 3, "%02x", random[i]);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || dprintf(fd, "%s\n", token) != HTTP_TOKEN_BYTES + 1) {
		int err = -errno;

		if (fd >= 0)
			close(fd);
		return why_set(why, err, "cannot write a token to %s: %s", path, strerror(-err));
	}
	close(fd);
	return 0;
}

int http_token_read(const char *path, char token[HTTP_TOKEN_BYTES + 1], struct why *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	char text[HTTP_TOKEN_BYTES + 2];
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return token_make(path, token, why);
	if (fd < 0)
		return why_set(why, -errno, "cannot read the token in %s: %s", path,
			       strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_mode & 077 || st.st_uid != geteuid()) {
		close(fd);
		return why_set(
			why, -EACCES,
			"%s can be read by others: it must be a file of this user, mode 0600",
			path);
	}
	n = read(fd, text, sizeof(text));
	close(fd);
	if (n < HTTP_TOKEN_BYTES || (n > HTTP_TOKEN_BYTES && text[HTTP_TOKEN_BYTES] != '\n') ||
	    strspn(text, "0123456789abcdef") != HTTP_TOKEN_BYTES)
		return why_set(
			why, -EINVAL,
			"%s holds no token: %d hexadecimal digits; removed, a new one is made",
			path, HTTP_TOKEN_BYTES);
	memcpy(token, text, HTTP_TOKEN_BYTES);
	token[HTTP_TOKEN_BYTES] = '\0';
	return 0;
}

int http_pem_read(const char *path, char **ret, struct why *why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n = -1;
	int err;

	if (fd < 0)
		return why_set(why, -errno, "cannot read %s: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
	    st.st_size > PEM_BYTES_MAX) {
		close(fd);
		return why_set(why, -EINVAL, "%s is no PEM file", path);
	}
	*ret = mem_alloc(MEM_HTTP, (size_t)st.st_size + 1);
	if (*ret)
		n = read(fd, *ret, (size_t)st.st_size);
	err = !*ret ? -ENOMEM : n != st.st_size ? -EIO : 0;
	close(fd);
	return err ? why_set(why, err, "cannot read %s: %s", path, strerror(-err)) : 0;
}
