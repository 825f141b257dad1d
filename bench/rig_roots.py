# SPDX-License-Identifier: Apache-2.0
"""Says whether a stack is whole, by its outermost frame alone and by nothing a profiler says of it.

Whole means: the outermost frame lies where a thread starts. That is a function of the list below, the
place a file says it is entered at, or code whose call frame information says that it has no caller
(readelf's reading of it), which is how C libraries mark the place where threads begin.
"""

import re
import subprocess
from functools import lru_cache

ENTRIES = {
    "_start", "_dl_start_user", "clone", "__clone", "clone3", "__clone3", "__start_context",
    "runtime.goexit", "runtime.goexit.abi0", "runtime.mstart", "runtime.rt0_go", "runtime.rt0_go.abi0",
    "_rt0_amd64_linux",
}
ENTRY_BYTES = 0x40  # _start is no longer


class Binary:
    """What readelf says of a file."""

    def __init__(self, path):
        self.path = path
        self.segments, self.entry = [], None
        for line in self.readelf("-Whl"):
            words = line.split()
            if line.strip().startswith("Entry point address"):
                self.entry = int(words[-1], 16)
            elif words[:1] == ["LOAD"]:
                self.segments.append(tuple(int(words[i], 16) for i in (1, 2, 4)))
        self._outermost = None

    def readelf(self, *args):
        done = subprocess.run(["readelf", *args, self.path], capture_output=True, text=True, errors="replace", check=False)
        return done.stdout.splitlines()

    def address(self, position):
        """Link-time address of a place in the file."""
        for offset, address, size in self.segments:
            if offset <= position < offset + size:
                return position - offset + address
        return None

    @property
    def outermost(self):
        """[start, end) of code whose return address is undefined."""
        if self._outermost is None:
            self._outermost = list(self.read_outermost())
        return self._outermost

    def read_outermost(self):
        start = end = None
        is_undefined = False
        for line in self.readelf("-wF"):
            fde = re.search(r" FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", line)
            row = re.match(r"([0-9a-f]{16}) .*\s(\S+)\s*$", line)
            if fde or (row and start is not None):
                here = int((fde or row)[1], 16)
                if is_undefined:
                    yield start, end if fde else here
                is_undefined = bool(row) and row[2] == "u"
                start = here
                if fde:
                    end = int(fde[2], 16)
        if is_undefined:
            yield start, end


@lru_cache(maxsize=None)
def binary(path):
    return Binary(path)


@lru_cache(maxsize=None)
def is_entry(name, path, position):
    """name: the frame's function or ""; path and position: the file it lies in, and where."""
    if re.sub(r"@.*|\+0x.*", "", name) in ENTRIES:
        return True
    if not path or position is None:
        return False
    file = binary(path)
    address = file.address(position)
    if address is None:
        return False
    if file.entry is not None and file.entry <= address <= file.entry + ENTRY_BYTES:
        return True
    # The address after the call may be the first of the next row.
    return any(start <= address < end or start <= address - 1 < end for start, end in file.outermost)
