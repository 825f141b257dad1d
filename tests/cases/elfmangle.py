# SPDX-License-Identifier: Apache-2.0
# elfmangle.py IN OUT noshdr|badshdr|gzbomb|shortnote : damaged but still runnable copies of an ELF64 file
import sys,struct
d=bytearray(open(sys.argv[1],'rb').read()); m=sys.argv[3]
if m=='noshdr': d[0x28:0x30]=bytes(8); d[0x3a:0x40]=bytes(6)
if m=='badshdr': d[0x28:0x30]=b'\xff'*8; d[0x3c:0x40]=b'\xff'*4
if m=='gzbomb':                       # SHF_COMPRESSED sections that claim to unpack to 64 GiB
    sh=struct.unpack_from('<Q',d,0x28)[0]
    for i in range(struct.unpack_from('<H',d,0x3c)[0]):
        o=sh+i*64
        if struct.unpack_from('<Q',d,o+8)[0]&0x800: struct.pack_into('<Q',d,struct.unpack_from('<Q',d,o+24)[0]+8,64<<30)
if m=='shortnote':                    # PT_NOTE whose name size is 4 GiB - 1
    ph=struct.unpack_from('<Q',d,0x20)[0]
    for i in range(struct.unpack_from('<H',d,0x38)[0]):
        o=ph+i*56
        if struct.unpack_from('<I',d,o)[0]==4: struct.pack_into('<I',d,struct.unpack_from('<Q',d,o+8)[0],0xffffffff)
open(sys.argv[2],'wb').write(d)
