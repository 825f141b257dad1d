# SPDX-License-Identifier: Apache-2.0
.text
.globl badcfi
.type badcfi,@function
badcfi: .cfi_startproc
 sub $0x28,%rsp
 .cfi_def_cfa_offset -128
1: incq s(%rip)
 jmp 1b
 .cfi_endproc
.size badcfi,.-badcfi
.globl nocfi
.type nocfi,@function
nocfi: sub $0x48,%rsp
1: incq s(%rip)
 jmp 1b
.size nocfi,.-nocfi
.globl zerosz
zerosz: .cfi_startproc
1: incq s(%rip)
 jmp 1b
 .cfi_endproc
.comm s,8
.section .note.GNU-stack,"",@progbits
