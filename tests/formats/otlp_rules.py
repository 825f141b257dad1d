# SPDX-License-Identifier: Apache-2.0
"""The rules of OTLP profiles as a list of faults, over the official bindings' messages.

What the working group's checker asks for with all its options on, and what receivers reject."""

from collections import Counter

TABLES = ("mapping_table", "location_table", "function_table", "link_table", "string_table",
          "attribute_table", "stack_table")


class Rules:
    def __init__(self, request):
        self.d = request.dictionary
        self.request = request
        self.faults = []
        self.used = {name: set() for name in TABLES}

    def say(self, ok, text):
        if not ok:
            self.faults.append(text)

    def use(self, table, index, who):
        size = len(getattr(self.d, table))
        self.say(0 <= index < size, f"{who}: index {index} of {size} in {table}")
        if 0 < index < size:
            self.used[table].add(index)
            return getattr(self.d, table)[index]
        return None

    def string(self, index, who):
        self.use("string_table", index, who)

    def attributes(self, indices, who):
        keys = []
        for index in indices:
            self.say(index != 0, f"{who}: attribute 0")
            attribute = self.use("attribute_table", index, who)
            if attribute:
                keys.append(attribute.key_strindex)
        self.say(len(keys) == len(set(keys)), f"{who}: one attribute key twice")

    def dictionary(self):
        for name in TABLES:
            table = getattr(self.d, name)
            if not len(table):
                self.faults.append(f"{name} is missing")
                continue
            zero = table[0]
            self.say(zero == "" if name == "string_table" else zero.ByteSize() == 0, f"{name}[0] is not zero")
            entries = Counter(e if name == "string_table" else e.SerializeToString(deterministic=True) for e in table)
            twice = [e for e, n in entries.items() if n > 1]
            self.say(not twice, f"{name}: an entry twice: {twice[:1]}")

    def mapping(self, m, who):
        self.say(m.memory_start < m.memory_limit or m.memory_start == m.memory_limit == 0, f"{who}: empty range")
        self.string(m.filename_strindex, who)
        self.attributes(m.attribute_indices, who)
        keys = {self.d.string_table[self.d.attribute_table[i].key_strindex] for i in m.attribute_indices}
        self.say(any(k.startswith("process.executable.build_id.") for k in keys), f"{who}: no identity")

    def tables(self):
        """Every entry that is used, and all it names."""
        for i in sorted(self.used["stack_table"]):
            for location in self.d.stack_table[i].location_indices:
                self.say(location != 0, f"stack {i}: location 0")
                self.use("location_table", location, f"stack {i}")
        for i in sorted(self.used["location_table"]):
            location, who = self.d.location_table[i], f"location {i}"
            m = self.use("mapping_table", location.mapping_index, who)
            if m:
                self.say(m.memory_start <= location.address <= m.memory_limit, f"{who}: outside its mapping")
            for line in location.lines:
                self.say(line.function_index != 0, f"{who}: function 0")
                self.use("function_table", line.function_index, who)
            self.attributes(location.attribute_indices, who)
        for i in sorted(self.used["mapping_table"]):
            self.mapping(self.d.mapping_table[i], f"mapping {i}")
        for i in sorted(self.used["function_table"]):
            f = self.d.function_table[i]
            self.say(f.name_strindex != 0, f"function {i}: no name")
            for index in (f.name_strindex, f.system_name_strindex, f.filename_strindex):
                self.string(index, f"function {i}")
        for i in sorted(self.used["attribute_table"]):
            a = self.d.attribute_table[i]
            self.say(a.key_strindex != 0, f"attribute {i}: no key")
            self.say(a.value.WhichOneof("value") is not None, f"attribute {i}: no value")
            for index in (a.key_strindex, a.unit_strindex):
                self.string(index, f"attribute {i}")
        for i in sorted(self.used["link_table"]):
            link = self.d.link_table[i]
            self.say(len(link.trace_id) == 16 and len(link.span_id) == 8, f"link {i}: lengths")

    def orphans(self):
        for name in TABLES:
            lost = set(range(1, len(getattr(self.d, name)))) - self.used[name]
            self.say(not lost, f"{name}: nobody names {sorted(lost)[:5]}")

    def sample(self, s, profile, who):
        self.use("stack_table", s.stack_index, who)
        self.use("link_table", s.link_index, who)
        self.attributes(s.attribute_indices, who)
        times = s.timestamps_unix_nano
        self.say(len(s.values) or len(times), f"{who}: neither values nor timestamps")
        self.say(not times or not s.values or len(times) == len(s.values), f"{who}: lengths differ")
        self.say(times or len(s.values) == 1, f"{who}: several values without timestamps")
        end = profile.time_unix_nano + profile.duration_nano
        self.say(all(profile.time_unix_nano <= t < end for t in times), f"{who}: a timestamp outside the window")
        return bool(times), bool(s.values)

    def profile(self, p, who):
        for value in (p.sample_type, p.period_type):
            self.string(value.type_strindex, who)
            self.string(value.unit_strindex, who)
        self.say(p.HasField("sample_type") and p.HasField("period_type"), f"{who}: a type is missing")
        self.say(p.period >= 0, f"{who}: negative period")
        self.say(p.time_unix_nano and p.duration_nano, f"{who}: no window")
        self.say(len(p.profile_id) in (0, 16), f"{who}: profile_id")
        self.attributes(p.attribute_indices, who)
        shapes = {self.sample(s, p, f"{who} sample {i}") for i, s in enumerate(p.samples)}
        self.say(len(shapes) <= 1, f"{who}: samples of several shapes")
        same = Counter((s.stack_index, tuple(sorted(s.attribute_indices)), s.link_index) for s in p.samples)
        self.say(not same or max(same.values()) == 1, f"{who}: one identity in two samples")

    def envelope(self):
        self.say(len(self.request.resource_profiles), "no resource")
        for i, resource in enumerate(self.request.resource_profiles):
            self.say(resource.HasField("resource"), f"resource {i} is absent")
            keys = [a.key for a in resource.resource.attributes]
            self.say(all(keys) and len(keys) == len(set(keys)), f"resource {i}: keys")
            self.say(all(a.value.WhichOneof("value") for a in resource.resource.attributes), f"resource {i}: values")
            self.say(not any(a.key_strindex for a in resource.resource.attributes), f"resource {i}: key by reference")
            self.say(len(resource.scope_profiles), f"resource {i}: no scope")
            for scope in resource.scope_profiles:
                self.say(scope.HasField("scope") and scope.scope.name, f"resource {i}: scope")
                self.say(len(scope.profiles), f"resource {i}: no profile")
                for k, p in enumerate(scope.profiles):
                    self.profile(p, f"resource {i} profile {k}")


def faults(request):
    rules = Rules(request)
    rules.dictionary()
    rules.envelope()
    rules.tables()
    rules.orphans()
    return rules.faults
