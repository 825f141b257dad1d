# SPDX-License-Identifier: Apache-2.0
# linebomb.py IN OUT : a copy of an ELF64 file whose line program goes on for a million rows, all valid
import struct
import subprocess
import sys

source, target = sys.argv[1:]
part = target + ".line"
subprocess.run(["objcopy", "-O", "binary", "--only-section=.debug_line", "--set-section-flags",
                ".debug_line=alloc", source, part], check=True)
with open(part, "rb") as file:
    program = bytearray(file.read())
program += bytes([0x4B]) * 1900000
struct.pack_into("<I", program, 0, len(program) - 4)
with open(part, "wb") as file:
    file.write(program)
subprocess.run(["objcopy", "--update-section", f".debug_line={part}", source, target], check=True)
