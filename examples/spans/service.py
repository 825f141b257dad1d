# SPDX-License-Identifier: Apache-2.0
"""service: as service.c, from Python, in one thread.  python3 service.py [LIBRARY]"""

import contextlib
import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libflyball-context.so")
REQUESTS = [("/fast", 20), ("/slow", 60), ("/batch", 120)]


class Attribute(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class ProcessContext(ctypes.Structure):
    _fields_ = [("resource", ctypes.POINTER(Attribute)), ("resource_count", ctypes.c_size_t),
                ("thread_keys", ctypes.POINTER(ctypes.c_char_p)), ("thread_key_count", ctypes.c_size_t)]


def publish(service, keys):
    resource = Attribute(b"service.name", service.encode())
    names = (ctypes.c_char_p * len(keys))(*(key.encode() for key in keys))
    me = ProcessContext(ctypes.pointer(resource), 1, names, len(keys))
    if library.flyball_process_context_publish(ctypes.byref(me)) or library.flyball_context_attach():
        sys.exit("cannot publish")


@contextlib.contextmanager
def span(trace_id, span_id, route):
    library.flyball_context_enter(trace_id, span_id, 1)
    library.flyball_context_attribute(0, route.encode(), ctypes.c_size_t(len(route)))
    try:
        yield
    finally:
        library.flyball_context_leave()


publish("example-python", ["http.route"])
for i in range(36):
    path, cpu_ms = REQUESTS[i % 3]
    with span(bytes([4] * 15 + [i]), bytes([4] * 7 + [i]), path):
        end = time.thread_time_ns() + cpu_ms * 1_000_000
        while time.thread_time_ns() < end:
            pass
