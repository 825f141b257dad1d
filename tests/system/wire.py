# SPDX-License-Identifier: Apache-2.0
"""Readers of flyball's files that share no code with its writers.

Folded text by the grammar scripts depend on, pprof and OTLP by a protobuf decoder of thirty lines.
Every reader checks what it reads: a file that any rule of its format forbids raises Malformed.
"""

import gzip
import re
from collections import Counter


class Malformed(Exception):
    """A file that breaks the rules of its format."""


# ------------------------------------------------------------------------------------ folded

# comm;outermost;...;innermost VALUE: no control character, no empty frame, one blank, a value from 1.
FOLDED = re.compile(r"[^;\x00-\x1f\x7f-\x9f]+(?:;[^;\x00-\x1f\x7f-\x9f]+)* [1-9][0-9]*")


class Line:
    """One stack of a folded file."""

    def __init__(self, text):
        if not FOLDED.fullmatch(text):
            raise Malformed(f"not a folded line: {text!r}")
        stack, value = text.rsplit(" ", 1)
        self.text = text
        self.value = int(value)
        self.root, *self.frames = stack.split(";")

    @property
    def is_cut(self):
        return any(is_pseudo(f) for f in self.frames)

    @property
    def user(self):
        """User frames, root to leaf, without pseudo frames."""
        return [f for f in self.frames if not f.endswith("_[k]") and not is_pseudo(f)]

    @property
    def kernel(self):
        return [f for f in self.frames if f.endswith("_[k]")]

    @property
    def leaf(self):
        """The innermost user frame, "" when there is none."""
        return self.user[-1] if self.user else ""


def is_pseudo(frame):
    return frame.startswith("[") and frame.endswith("]")


class Folded(list):
    """A folded file: a list of Line."""

    def __init__(self, data):
        super().__init__()
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        if text and not text.endswith("\n"):
            raise Malformed("the last line has no end")
        # Not splitlines: it takes other characters for line ends too.
        self.extend(Line(line) for line in text.split("\n")[:-1])
        twice = [k for k, n in Counter(line.text.rsplit(" ", 1)[0] for line in self).items() if n > 1]
        if twice:
            raise Malformed(f"one stack on several lines: {twice[0]}")

    @property
    def total(self):
        return sum(line.value for line in self)

    def of(self, root):
        """The lines of one comm."""
        return [line for line in self if line.root == root]

    def leaves(self, root=None):
        """Nanoseconds by innermost user frame."""
        found = Counter()
        for line in self if root is None else self.of(root):
            found[line.leaf] += line.value
        return found

    def has(self, *names):
        """Whether some stack holds all these frames."""
        return any(all(n in line.frames for n in names) for line in self)


# ------------------------------------------------------------------------------------ protobuf


def varint(data, at):
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result & (2**64 - 1), at
        shift += 7
        if shift > 63:
            raise Malformed("varint of more than ten bytes")


def fields(data):
    """(number, value) of each field: int for wire types 0, 1 and 5, bytes for 2."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = int.from_bytes(data[at:at + size], "little"), at + size
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            raise Malformed(f"wire type {kind}")
        if at > len(data):
            raise Malformed("a field reaches past the end")
        yield tag >> 3, value


class Message:
    """One message; fields by number."""

    def __init__(self, data):
        self.fields = {}
        for number, value in fields(data):
            self.fields.setdefault(number, []).append(value)

    def one(self, number, default=0):
        return self.fields.get(number, [default])[-1]

    def signed(self, number):
        value = self.one(number)
        return value - 2**64 if value >> 63 else value

    def text(self, number):
        return self.one(number, b"").decode("utf-8")

    def messages(self, number):
        return [Message(data) for data in self.fields.get(number, [])]

    def message(self, number):
        return Message(self.one(number, b""))

    def numbers(self, number):
        """A repeated scalar, packed or not."""
        found = []
        for value in self.fields.get(number, []):
            if isinstance(value, int):
                found.append(value)
                continue
            at = 0
            while at < len(value):
                item, at = varint(value, at)
                found.append(item)
        return found

    def fixed64(self, number):
        """A repeated fixed64, packed or not."""
        found = []
        for value in self.fields.get(number, []):
            if isinstance(value, int):
                found.append(value)
            else:
                found += [int.from_bytes(value[i:i + 8], "little") for i in range(0, len(value), 8)]
        return found


# ------------------------------------------------------------------------------------ pprof


class Frame:
    """One location of a pprof stack."""

    def __init__(self, names, mapping, address):
        self.names = names  # innermost first
        self.mapping = mapping
        self.address = address

    @property
    def name(self):
        return self.names[0] if self.names else ""

    @property
    def file_position(self):
        return self.address - self.mapping.start + self.mapping.offset if self.mapping else None


class Mapping:
    """A mapped file of a pprof profile."""

    def __init__(self, start, limit, offset, path, build_id):
        self.start, self.limit, self.offset = start, limit, offset
        self.path, self.build_id = path, build_id


class Sample:
    """One sample of a pprof profile; frames innermost first."""

    def __init__(self, frames, values, labels):
        self.frames, self.values, self.labels = frames, values, labels

    @property
    def names(self):
        return [frame.name for frame in self.frames]

    @property
    def user(self):
        return [f for f in self.frames if f.mapping and not f.mapping.path.startswith("[kernel")]


class Pprof:
    """A pprof file. `values` index: 0 is the count, -1 the nanoseconds."""

    def __init__(self, data):
        raw = gzip.decompress(data)
        top = Message(raw)
        self.strings = [s.decode("utf-8") for s in top.fields.get(6, [])]
        string = self.strings.__getitem__
        self.types = [(string(t.one(1)), string(t.one(2))) for t in top.messages(1)]
        self.period = top.one(12)
        self.time_ns, self.duration_ns = top.one(9), top.one(10)
        self.comments = [string(i) for i in top.numbers(13)]
        self.mappings = {
            m.one(1): Mapping(m.one(2), m.one(3), m.one(4), string(m.one(5)), string(m.one(6)))
            for m in top.messages(3)}
        functions = {f.one(1): string(f.one(2)) for f in top.messages(5)}
        self.locations = {
            loc.one(1): Frame([functions[line.one(1)] for line in loc.messages(4)],
                              self.mappings.get(loc.one(2)), loc.one(3))
            for loc in top.messages(4)}
        self.samples = [
            Sample([self.locations[i] for i in s.numbers(1)], s.numbers(2), self._labels(s))
            for s in top.messages(2)]

    def _labels(self, sample):
        found = {}
        for label in sample.messages(3):
            key = self.strings[label.one(1)]
            found[key] = self.strings[label.one(2)] if label.one(2) else label.signed(3)
        return found

    def total(self, index=-1):
        return sum(s.values[index] for s in self.samples)

    def by(self, label, index=-1):
        """Nanoseconds by the value of a label."""
        found = Counter()
        for s in self.samples:
            found[s.labels.get(label)] += s.values[index]
        return found


# ------------------------------------------------------------------------------------ OTLP


def any_value(message):
    for number, as_is in ((1, False), (2, True), (3, True), (8, True)):
        if number in message.fields:
            value = message.one(number)
            return value if as_is else value.decode("utf-8")
    if 5 in message.fields:
        return [any_value(m) for m in message.message(5).messages(1)]
    return None


class OtlpProfile:
    """One Profile of a request, with its resource."""

    def __init__(self, resource, message, dictionary):
        self.resource = resource
        self.type = dictionary.value_type(message.message(1))
        self.time_ns, self.duration_ns = message.one(3), message.one(4)
        self.period_type = dictionary.value_type(message.message(5))
        self.period = message.one(6)
        self.attributes = dictionary.attributes_of(message.numbers(11))
        self.samples = [OtlpSample(m, dictionary) for m in message.messages(2)]

    @property
    def total_ns(self):
        """What the samples stand for; the shapes of research notes: timestamps count, values say."""
        scale = self.period if self.type[1] == "count" else 1
        return scale * sum(sum(s.values) if s.values else len(s.times) for s in self.samples)


class OtlpSample:
    def __init__(self, message, dictionary):
        self.stack = dictionary.stacks[message.one(1)]
        self.attributes = dictionary.attributes_of(message.numbers(2))
        self.trace_id, self.span_id = dictionary.links[message.one(3)]  # "": no link
        self.values = message.numbers(4)
        self.times = message.fixed64(5)


class Dictionary:
    """The seven tables of a request."""

    def __init__(self, message):
        self.strings = [s.decode("utf-8") for s in message.fields.get(5, [])]
        for number in range(1, 8):
            table = message.fields.get(number, [])
            if not table or table[0] != b"":
                raise Malformed(f"dictionary table {number} does not begin with a zero element")
        self.attributes = [(self.strings[m.one(1)], any_value(m.message(2))) for m in message.messages(6)]
        self.mappings = [
            {"start": m.one(1), "limit": m.one(2), "offset": m.one(3), "path": self.strings[m.one(4)],
             "attributes": self.attributes_of(m.numbers(5))} for m in message.messages(1)]
        functions = [self.strings[m.one(1)] for m in message.messages(3)]
        self.locations = [
            {"mapping": self.mappings[m.one(1)], "address": m.one(2),
             "names": [functions[line.one(1)] for line in m.messages(3)],
             "attributes": self.attributes_of(m.numbers(4))} for m in message.messages(2)]
        self.links = [tuple(m.one(n, b"").hex() for n in (1, 2)) for m in message.messages(4)]
        self.stacks = [[self.locations[i] for i in m.numbers(1)] for m in message.messages(7)]

    def attributes_of(self, indices):
        return dict(self.attributes[i] for i in indices)

    def value_type(self, message):
        return self.strings[message.one(1)], self.strings[message.one(2)]


class Otlp(list):
    """An ExportProfilesServiceRequest: a list of OtlpProfile."""

    def __init__(self, data):
        super().__init__()
        top = Message(data)
        self.dictionary = Dictionary(top.message(2))
        for resource_profiles in top.messages(1):
            resource = {a.text(1): any_value(a.message(2))
                        for a in resource_profiles.message(1).messages(1)}
            for scope in resource_profiles.messages(2):
                self.extend(OtlpProfile(resource, m, self.dictionary) for m in scope.messages(2))

    @property
    def total_ns(self):
        return sum(profile.total_ns for profile in self)
