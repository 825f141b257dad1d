# SPDX-License-Identifier: Apache-2.0
"""settid.py PID PROGRAM ARGS...: starts a program under a PID of choice (needs root): reuse on demand."""
import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)


class CloneArgs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags pidfd child_tid parent_tid exit_signal stack stack_size tls set_tid set_tid_size cgroup").split()]


wanted = (ctypes.c_int * 1)(int(sys.argv[1]))
args = CloneArgs(exit_signal=17, set_tid=ctypes.addressof(wanted), set_tid_size=1)
pid = libc.syscall(435, ctypes.byref(args), ctypes.sizeof(args))  # clone3
if pid < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
if pid == 0:
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.execvp(sys.argv[2], sys.argv[2:])
print(pid, flush=True)
