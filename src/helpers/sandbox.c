// SPDX-License-Identifier: Apache-2.0
#include "sandbox.h"

#include <errno.h>
#include <grp.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define NOBODY 65534

bool sandbox_is_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__)
	return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
	return true;
#else
	return false;
#endif
#else
	return false;
#endif
}

int sandbox_follow_parent(int parent, struct why *why)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		return why_set(why, -errno, "PR_SET_PDEATHSIG: %s", strerror(errno));
	if (getppid() != parent)
		return why_set(why, -ESRCH, "the parent is gone");
	return 0;
}

int sandbox_start(int last_fd, int parent, struct why *why)
{
	struct rlimit none = {0, 0};
	int err = sandbox_follow_parent(parent, why);

	if (err)
		return err;
	if (close_range((unsigned int)last_fd + 1, ~0U, 0))
		return why_set(why, -errno, "close_range: %s", strerror(errno));
	signal(SIGINT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
	return 0;
}

int sandbox_drop(const cap_value_t *keep, int count, struct why *why)
{
	cap_t caps, have = cap_get_proc();
	int err = 0;

	caps = cap_init();
	if (!have || !caps) {
		err = why_set(why, -ENOMEM, "cap_get_proc: %s", strerror(errno));
		goto out;
	}
	for (int i = 0; i < count; i++) {
		cap_flag_value_t has = CAP_CLEAR;

		if (cap_get_flag(have, keep[i], CAP_PERMITTED, &has) || has != CAP_SET)
			continue;
		cap_set_flag(caps, CAP_PERMITTED, 1, &keep[i], CAP_SET);
		cap_set_flag(caps, CAP_EFFECTIVE, 1, &keep[i], CAP_SET);
	}
	/* As nobody, root's own files are not ours to write. A main that has given up CAP_SETUID
	 * itself leaves the helper the uid it has. */
	prctl(PR_SET_KEEPCAPS, 1);
	if (geteuid() == 0 &&
	    (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	     setresuid(NOBODY, NOBODY, NOBODY)) &&
	    errno != EPERM) {
		err = why_set(why, -errno, "cannot become nobody: %s", strerror(errno));
		goto out;
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (cap_set_proc(caps))
		err = why_set(why, -errno, "cannot drop capabilities: %s", strerror(errno));
	else if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		err = why_set(why, -errno, "PR_SET_NO_NEW_PRIVS: %s", strerror(errno));
out:
	cap_free(have);
	cap_free(caps);
	return err;
}

static int rules_add(scmp_filter_ctx filter, uint32_t action, const struct sandbox_rule *rules,
		     size_t count)
{
	int err = 0;

	for (size_t i = 0; !err && i < count; i++) {
		const struct sandbox_rule *r = &rules[i];

		if (r->arg < 0)
			err = seccomp_rule_add(filter, action, r->syscall, 0);
		else
			err = seccomp_rule_add(filter, action, r->syscall, 1,
					       SCMP_CMP((unsigned int)r->arg, SCMP_CMP_MASKED_EQ,
							r->mask, r->value));
	}
	return err;
}

static int filter_load(uint32_t otherwise, const struct sandbox_rule *rules, size_t count,
		       const struct sandbox_rule *refused, size_t refused_count, struct why *why)
{
	scmp_filter_ctx filter;
	int err;

	if (sandbox_is_sanitized())
		return 0;
	filter = seccomp_init(otherwise);
	if (!filter)
		return why_set(why, -ENOMEM, "seccomp_init failed");
	err = rules_add(filter, SCMP_ACT_ALLOW, rules, count);
	if (!err)
		err = rules_add(filter, SCMP_ACT_ERRNO(EACCES), refused, refused_count);
	if (!err)
		err = seccomp_load(filter);
	seccomp_release(filter);
	return err ? why_set(why, err, "seccomp: %s", strerror(-err)) : 0;
}

int sandbox_filter(const struct sandbox_rule *rules, size_t count, struct why *why)
{
	return filter_load(SCMP_ACT_KILL_PROCESS, rules, count, NULL, 0, why);
}

int sandbox_filter_soft(const struct sandbox_rule *rules, size_t count, struct why *why)
{
	return filter_load(SCMP_ACT_ERRNO(ENOSYS), rules, count, NULL, 0, why);
}

int sandbox_filter_refusing(const struct sandbox_rule *rules, size_t count,
			    const struct sandbox_rule *refused, size_t refused_count,
			    struct why *why)
{
	return filter_load(SCMP_ACT_KILL_PROCESS, rules, count, refused, refused_count, why);
}
