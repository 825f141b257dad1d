# SPDX-License-Identifier: Apache-2.0
"""Unwind tables of this machine's own programs and libraries, row by row beside libdw."""

import re
import subprocess

import rig


def test_tables_of_this_machine_are_libdws():
    """The largest, the worst, and others, 300 or more; all that there are with --long."""
    command = ["/usr/bin/python3", rig.ROOT / "bench" / "unwind-check", "--flyball", rig.FLYBALL]
    done = subprocess.run([*command, *([] if rig.LONG else ["--sample", "240"])], capture_output=True, text=True,
                          timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    files = int(re.search(r"^files +(\d+);", done.stdout, re.M)[1])
    compared, differ = map(int, re.search(r"^addresses +(\d+) compared, (\d+) differ", done.stdout, re.M).groups())
    assert files >= 200 and compared > 100000 and differ == 0, done.stdout
