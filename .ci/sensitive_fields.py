#!/usr/bin/env python3
"""sensitive_fields.py [--write]

Compares src/redact/fields.txt with the published descriptors (PyPI xds-protos): the fields that Envoy annotates as
`udpa.annotations.sensitive`, and those that lead to them without an Any. --write replaces the file.
Run with the environment of .ci/check_protos.sh. Exit 0: the file is complete.
"""
import importlib, os, sys

import envoy.service.discovery.v3.discovery_pb2 as probe
from udpa.annotations import sensitive_pb2

TABLE = "src/redact/fields.txt"
TEXT = (9, 12)  # string, bytes

# Credentials that have no annotation.
GOOGLE = "GrpcService.GoogleGrpc.CallCredentials"
MORE = {
    f"{package}.{message}": fields
    for package in ("envoy.config.core.v3", "envoy.api.v2.core")
    for message, fields in {
        GOOGLE: ("access_token", "google_refresh_token"),
        f"{GOOGLE}.ServiceAccountJWTAccessCredentials": ("json_key",),
        f"{GOOGLE}.GoogleIAMCredentials": ("authorization_token",),
    }.items()
} | {"envoy.extensions.grpc_service.call_credentials.access_token.v3.AccessTokenCredentials": ("token",)}
# Metadata that is sent to a server, often with a token. Other headers of this type are no credentials.
METADATA = [("envoy.config.core.v3", "value", 2), ("envoy.config.core.v3", "raw_value", 3), ("envoy.api.v2.core", "value", 2)]


def messages():
    site = os.path.abspath(probe.__file__).split(os.sep + "envoy" + os.sep)[0]
    found = {}

    def add(some):
        for message in some:
            if not message.GetOptions().map_entry:
                found[message.full_name] = message
                add(message.nested_types)

    for root, _, files in os.walk(os.path.join(site, "envoy")):
        for name in files:
            if name.endswith("_pb2.py"):
                path = os.path.relpath(os.path.join(root, name), site)[:-3]
                add(importlib.import_module(path.replace(os.sep, ".")).DESCRIPTOR.message_types_by_name.values())
    return found


def is_sensitive(message, field):
    options = field.GetOptions()
    return options.Extensions[sensitive_pb2.sensitive] or field.name in MORE.get(message.full_name, ())


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def value_of(field):
    """The field itself, or the values of a map."""
    return field.message_type.fields_by_name["value"] if is_map(field) else field


def table():
    known = messages()
    rows = {}

    def add(message, field, kind):
        rows.setdefault(message, {})[field.number] = f"{field.name} {'map ' if is_map(field) else ''}{kind}"

    for name, message in known.items():
        for field in message.fields:
            if not is_sensitive(message, field):
                continue
            inner = value_of(field).message_type
            if inner is None:
                if value_of(field).type in TEXT:
                    add(name, field, "text")
            elif inner.name == "DataSource":
                add(name, field, "source")
            elif inner.full_name in ("google.protobuf.Any", "google.protobuf.Struct"):
                add(name, field, inner.name.lower())
            else:
                add(name, field, f"message {inner.full_name}")
                for text in inner.fields:
                    if text.type in TEXT:
                        add(inner.full_name, text, "text")
    leading = set(rows) | {"envoy.config.core.v3.GrpcService", "envoy.api.v2.core.GrpcService"}
    while True:
        to = lambda field: value_of(field).message_type
        more = {n for n, m in known.items() if n not in leading and any(to(f) and to(f).full_name in leading for f in m.fields)}
        if not more:
            break
        leading |= more
    for name in leading:
        for field in known[name].fields:
            inner = value_of(field).message_type
            if inner and inner.full_name in leading and field.number not in rows.get(name, {}):
                add(name, field, f"message {inner.full_name}")
    for package, name, number in METADATA:
        rows.setdefault(f"{package}.HeaderValue", {})[number] = f"{name} text"
        rows[f"{package}.GrpcService"][5] = f"initial_metadata message {package}.HeaderValue"
    lines = [
        "# Fields with credentials, and fields that lead to them: those that Envoy annotates as udpa.annotations.sensitive, and a few",
        "# more. Written by .ci/sensitive_fields.py.",
    ]
    for name in sorted(rows):
        lines.append(name)
        lines += [f"  {number} {rows[name][number]}" for number in sorted(rows[name])]
    return "\n".join(lines) + "\n"


expected = table()
if "--write" in sys.argv[1:]:
    os.makedirs(os.path.dirname(TABLE), exist_ok=True)
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(expected)
with open(TABLE, encoding="utf-8") as file:
    actual = file.read()
if actual != expected:
    missing = sorted(set(expected.splitlines()) - set(actual.splitlines()))
    sys.exit(f"{TABLE} is not what the published descriptors say: run .ci/sensitive_fields.py --write\n" + "\n".join(missing[:20]))
print(f"{TABLE}: {sum(not line.startswith(('#', ' ')) for line in expected.splitlines())} messages")
