# SPDX-License-Identifier: Apache-2.0
# start argv[2:] under the PID in argv[1] (needs root); shows PID reuse on demand
import ctypes,os,sys
libc=ctypes.CDLL(None,use_errno=True); want=int(sys.argv[1])
class A(ctypes.Structure): _fields_=[(n,ctypes.c_uint64) for n in "flags pidfd child_tid parent_tid exit_signal stack stack_size tls set_tid set_tid_size cgroup".split()]
t=(ctypes.c_int*1)(want); a=A(exit_signal=17,set_tid=ctypes.addressof(t),set_tid_size=1)
p=libc.syscall(435,ctypes.byref(a),ctypes.sizeof(a))
if p<0: sys.exit(os.strerror(ctypes.get_errno()))
if p==0: os.execvp(sys.argv[2],sys.argv[2:])
print(p,flush=True)
