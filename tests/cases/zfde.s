# SPDX-License-Identifier: Apache-2.0
.text
.globl empty_cold
.type empty_cold,@function
empty_cold:
 .cfi_startproc
 .cfi_endproc
.size empty_cold,0
.globl real_fn
.type real_fn,@function
real_fn:
 .cfi_startproc
 sub $0x28,%rsp
 .cfi_def_cfa_offset 0x30
1: incq s(%rip)
 jmp 1b
 .cfi_endproc
.size real_fn,.-real_fn
.globl s
.comm s,8
.section .note.GNU-stack,"",@progbits
