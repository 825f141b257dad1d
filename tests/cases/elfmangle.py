# SPDX-License-Identifier: Apache-2.0
"""elfmangle.py IN OUT HOW: damaged but still runnable copies of an ELF64 file.

noshdr     no section headers          badshdr   their offset and count are all ones
gzbomb     SHF_COMPRESSED sections that claim to unpack to 64 GiB
shortnote  a PT_NOTE whose name size is 4 GiB - 1
truncsym   a symbol table that reaches past the end of the file
hugesym    one that claims 2^60 bytes  badstr    whose strings lie past the end of the file
"""
import struct
import sys

data = bytearray(open(sys.argv[1], "rb").read())
how = sys.argv[3]
section_table = struct.unpack_from("<Q", data, 0x28)[0]
section_count = struct.unpack_from("<H", data, 0x3C)[0]


def sections(kind):
    for i in range(section_count):
        at = section_table + i * 64
        if struct.unpack_from("<I", data, at + 4)[0] == kind:
            yield at


if how == "noshdr":
    data[0x28:0x30] = bytes(8)
    data[0x3A:0x40] = bytes(6)
elif how == "badshdr":
    data[0x28:0x30] = b"\xff" * 8
    data[0x3C:0x40] = b"\xff" * 4
elif how == "gzbomb":
    for i in range(section_count):
        at = section_table + i * 64
        if struct.unpack_from("<Q", data, at + 8)[0] & 0x800:
            struct.pack_into("<Q", data, struct.unpack_from("<Q", data, at + 24)[0] + 8, 64 << 30)
elif how == "shortnote":
    programs = struct.unpack_from("<Q", data, 0x20)[0]
    for i in range(struct.unpack_from("<H", data, 0x38)[0]):
        at = programs + i * 56
        if struct.unpack_from("<I", data, at)[0] == 4:
            struct.pack_into("<I", data, struct.unpack_from("<Q", data, at + 8)[0], 0xFFFFFFFF)
elif how in ("truncsym", "hugesym"):
    for at in sections(2):  # SHT_SYMTAB
        struct.pack_into("<Q", data, at + 32, 1 << 60 if how == "hugesym" else len(data))
elif how == "badstr":
    for at in sections(2):
        strings = section_table + 64 * struct.unpack_from("<I", data, at + 40)[0]
        struct.pack_into("<Q", data, strings + 24, len(data) + 4096)
else:
    sys.exit(__doc__)
open(sys.argv[2], "wb").write(data)
