#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""page_embed.py PAGE OUT_C: the page's template as a C array, profile_page_template."""

import sys


def main():
    page, out = sys.argv[1:]
    with open(page, "rb") as f:
        data = f.read()
    with open(out, "w", encoding="ascii") as f:
        f.write('#include "page.h"\n\n')
        f.write("const unsigned char profile_page_template[] = {\n")
        for i in range(0, len(data), 32):
            f.write(",".join(map(str, data[i:i + 32])) + ",\n")
        f.write(f"}};\nconst size_t profile_page_template_size = {len(data)};\n")


main()
