"""Reads profiles as others do: by Google's protobuf, from a description of the message made apart from ours.

Field numbers and types are those of `proto/profile.proto` in github.com/google/pprof.
"""

from __future__ import annotations

import gzip
from importlib import import_module
from typing import Any

_MESSAGES = {
    "Profile": (
        "sample_type 1* ValueType", "sample 2* Sample", "mapping 3* Mapping", "location 4* Location", "function 5* Function",
        "string_table 6* string", "drop_frames 7 int64", "keep_frames 8 int64", "time_nanos 9 int64", "duration_nanos 10 int64",
        "period_type 11 ValueType", "period 12 int64", "comment 13* int64", "default_sample_type 14 int64",
    ),
    "ValueType": ("type 1 int64", "unit 2 int64"),
    "Sample": ("location_id 1* uint64", "value 2* int64", "label 3* Label"),
    "Label": ("key 1 int64", "str 2 int64", "num 3 int64", "num_unit 4 int64"),
    "Mapping": (
        "id 1 uint64", "memory_start 2 uint64", "memory_limit 3 uint64", "file_offset 4 uint64", "filename 5 int64",
        "build_id 6 int64", "has_functions 7 bool", "has_filenames 8 bool", "has_line_numbers 9 bool", "has_inline_frames 10 bool",
    ),
    "Location": ("id 1 uint64", "mapping_id 2 uint64", "address 3 uint64", "line 4* Line", "is_folded 5 bool"),
    "Line": ("function_id 1 uint64", "line 2 int64", "column 3 int64"),
    "Function": ("id 1 uint64", "name 2 int64", "system_name 3 int64", "filename 4 int64", "start_line 5 int64"),
}  # fmt: skip


def _profile_class() -> Any:
    """Return the class of messages, made of the table above."""
    descriptors: Any = import_module("google.protobuf.descriptor_pb2")
    pool: Any = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    file = descriptors.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            key, number, kind = field.split()
            one = message.field.add(name=key, number=int(number.rstrip("*")))
            one.label = one.LABEL_REPEATED if number.endswith("*") else one.LABEL_OPTIONAL
            if kind in _MESSAGES:
                one.type, one.type_name = one.TYPE_MESSAGE, f".perftools.profiles.{kind}"
            else:
                one.type = getattr(one, f"TYPE_{kind.upper()}")
    pool.Add(file)
    return import_module("google.protobuf.message_factory").GetMessageClass(
        pool.FindMessageTypeByName("perftools.profiles.Profile")
    )


Profile = _profile_class()


def read(data: bytes) -> Any:
    """Return the message in a gzip'd profile; fails where it has fields that the format does not."""
    message = Profile.FromString(gzip.decompress(data))
    assert len(import_module("google.protobuf.unknown_fields").UnknownFieldSet(message)) == 0
    return message


def samples(message: Any) -> dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], tuple[int, ...]]:
    """Return the values by stack (`function file:line`, the innermost first) and labels; each id is looked up."""
    text = list(message.string_table)
    functions = {one.id: one for one in message.function}
    places = {}
    for location in message.location:
        (line,) = location.line
        function = functions[line.function_id]
        assert location.mapping_id == message.mapping[0].id
        places[location.id] = f"{text[function.name]} {text[function.filename]}:{line.line}"
    assert len(places) == len(message.location), "ids are unique"
    assert 0 not in places
    assert text[0] == ""
    found: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], tuple[int, ...]] = {}
    for sample in message.sample:
        assert len(sample.value) == len(message.sample_type)
        stack = tuple(places[number] for number in sample.location_id)
        labels = tuple((text[label.key], text[label.str]) for label in sample.label)
        assert (stack, labels) not in found
        found[stack, labels] = tuple(sample.value)
    return found
