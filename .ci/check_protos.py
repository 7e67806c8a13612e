#!/usr/bin/env python3
"""check_protos.py DIR... [-I EXTRA_INCLUDE ...] [--newer FDS.bin ...] [--json OUT] [--quiet] [--allow-unknown]

Compile every .proto under DIR (grpcio-tools protoc) to a descriptor set and compare every message, enum and
service that upstream also has (by full name) against the upstream descriptors shipped in PyPI xds-protos
(envoy.*, xds.*, udpa.*, validate, google.rpc/api/type, cel, opentelemetry, opencensus) and protobuf's own
well-known types.  A trimmed .proto may leave fields, values, methods out; what it has must agree:
  field      number <-> name, type, label (repeated/optional), message/enum type name, oneof membership (by oneof name,
             synthetic proto3-optional oneofs excluded), proto3_optional, json_name, packed, map-ness
  enum       value name <-> number, allow_alias; 0 value
  service    existence, method input/output type, client/server streaming
  file       package, syntax (proto2/proto3/editions) of the file defining a common symbol
Also: a field number used here under another name, a number reserved upstream, and (warning) hidden extra symbols.
--newer FDS.bin  (e.g. envoy-types' src/generated/types.bin) adds to upstream only what xds-protos lacks (its snapshot is older).
Run with the venv that has grpcio-tools + xds-protos.  Exit 0 = no mismatch, 1 = mismatch, 2 = cannot compile / nothing to check.
"""
import argparse, importlib, json, os, pkgutil, sys, tempfile
from google.protobuf import descriptor_pb2 as d, descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F

# Deviations that are meant: the published ClusterCollection.entries is singular by mistake.
MEANT = {("envoy.config.cluster.v3.ClusterCollection.entries", "label")}
UP_ROOTS = ["envoy", "xds", "udpa", "validate", "google", "cel", "opentelemetry", "opencensus"]

def upstream_files():
    """All FileDescriptorProtos of the *_pb2 modules below UP_ROOTS, found on disk next to xds-protos."""
    import envoy.service.discovery.v3.discovery_pb2 as probe
    site = os.path.abspath(probe.__file__).split(os.sep + "envoy" + os.sep)[0]
    out, failed = {}, []
    dirs = [(site, r) for r in UP_ROOTS]
    import google.protobuf as gp
    gsite = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(gp.__file__))))
    dirs.append((gsite, os.path.join("google", "protobuf")))
    for base, r in dirs:
        for root, _, files in os.walk(os.path.join(base, r)):
            for f in files:
                if not f.endswith("_pb2.py"): continue
                mod = os.path.relpath(os.path.join(root, f), base)[:-3].replace(os.sep, ".")
                try: m = importlib.import_module(mod)
                except Exception as e: failed.append((mod, str(e))); continue
                if hasattr(m, "DESCRIPTOR"):
                    p = d.FileDescriptorProto(); m.DESCRIPTOR.CopyToProto(p); out[p.name] = p
    return out, failed

def index(files):
    """full name -> (kind, proto, file)"""
    ix = {}
    def msg(pre, m, fp):
        n = f"{pre}.{m.name}" if pre else m.name
        ix[n] = ("message", m, fp)
        for x in m.nested_type: msg(n, x, fp)
        for x in m.enum_type: ix[f"{n}.{x.name}"] = ("enum", x, fp)
    for fp in files:
        for m in fp.message_type: msg(fp.package, m, fp)
        for e in fp.enum_type: ix[f"{fp.package}.{e.name}" if fp.package else e.name] = ("enum", e, fp)
        for s in fp.service: ix[f"{fp.package}.{s.name}" if fp.package else s.name] = ("service", s, fp)
    return ix

def compile_dir(dirs, extra):
    from grpc_tools import protoc
    import grpc_tools
    inc = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    protos = []
    for dd in dirs:
        for root, _, files in os.walk(dd):
            protos += [os.path.relpath(os.path.join(root, f), dd) for f in files if f.endswith(".proto")]
    protos = sorted(set(protos))
    if not protos: print("no .proto files"); sys.exit(2)
    with tempfile.NamedTemporaryFile(suffix=".pb") as t:
        args = ["protoc"] + [f"-I{x}" for x in [*dirs, *extra, inc]] + ["--include_imports", f"--descriptor_set_out={t.name}"] + protos
        if protoc.main(args) != 0: print("protoc failed"); sys.exit(2)
        fs = d.FileDescriptorSet(); fs.ParseFromString(open(t.name, "rb").read())
    return fs, set(protos)

TYPE = {v: k[5:].lower() for k, v in F.Type.items()}
LABEL = {v: k[6:].lower() for k, v in F.Label.items()}

def syntax(fp): return fp.syntax or "proto2"

def is_packed(f, fp):
    if f.label != F.LABEL_REPEATED or f.type in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE, F.TYPE_GROUP): return None
    return f.options.packed if f.options.HasField("packed") else syntax(fp) == "proto3"

def oneof_of(m, f):
    if not f.HasField("oneof_index") or f.proto3_optional: return None
    return m.oneof_decl[f.oneof_index].name

def json_name(f):
    if f.json_name: return f.json_name
    p = f.name.split("_"); return p[0] + "".join(x[:1].upper() + x[1:] for x in p[1:])

def merge_newer(uix, path):
    """Add symbols, fields, enum values and methods of a descriptor set that the primary upstream lacks."""
    fs = d.FileDescriptorSet(); fs.ParseFromString(open(path, "rb").read()); added = 0
    for n, (k, p, fp) in index(fs.file).items():
        if n not in uix: uix[n] = (k, p, fp); added += 1; continue
        uk, u, ufp = uix[n]
        if uk != k: continue
        if k == "message":
            names = {f.name for f in u.field}; nums = {f.number for f in u.field}
            for f in p.field:
                if f.name in names or f.number in nums: continue
                g = u.field.add(); g.CopyFrom(f); added += 1
                if f.HasField("oneof_index"):
                    o = p.oneof_decl[f.oneof_index].name; have = [x.name for x in u.oneof_decl]
                    if o not in have: u.oneof_decl.add(name=o); have.append(o)
                    g.oneof_index = have.index(o)
        elif k == "enum":
            names = {v.name for v in u.value}
            for v in p.value:
                if v.name not in names: u.value.add().CopyFrom(v); added += 1
        else:
            names = {m.name for m in u.method}
            for m in p.method:
                if m.name not in names: u.method.add().CopyFrom(m); added += 1
    return len(fs.file), added

class Check:
    def __init__(self): self.bad = []; self.warn = []; self.n = dict(message=0, field=0, enum=0, value=0, service=0, method=0, skipped=0)
    def b(self, where, what, ours, up):
        if (where, what) in MEANT: return
        self.bad.append(dict(where=where, what=what, ours=ours, upstream=up))
    def message(self, name, a, fa, u, fu):
        self.n["message"] += 1
        byname = {f.name: f for f in u.field}; bynum = {f.number: f for f in u.field}
        if a.options.map_entry != u.options.map_entry: self.b(name, "map_entry", a.options.map_entry, u.options.map_entry)
        for f in a.field:
            self.n["field"] += 1; w = f"{name}.{f.name}"
            g = byname.get(f.name)
            if g is None:
                other = bynum.get(f.number)
                if other is not None: self.b(w, "field name for number %d" % f.number, f.name, other.name)
                elif any(r.start <= f.number < r.end for r in u.reserved_range): self.b(w, "number reserved upstream", f.number, "reserved")
                else: self.b(w, "no such field upstream", f"{f.name} = {f.number}", None)
                continue
            def eq(what, x, y):
                if x != y: self.b(w, what, x, y)
            eq("number", f.number, g.number); eq("type", TYPE[f.type], TYPE[g.type]); eq("label", LABEL[f.label], LABEL[g.label])
            eq("type name", f.type_name.lstrip("."), g.type_name.lstrip("."))
            eq("oneof", oneof_of(a, f), oneof_of(u, g)); eq("proto3_optional", f.proto3_optional, g.proto3_optional)
            eq("json_name", json_name(f), json_name(g)); eq("packed", is_packed(f, fa), is_packed(g, fu))
            eq("default", f.default_value, g.default_value)
        mine = {f.number for f in a.field}
        for r in a.reserved_range:
            for g in u.field:
                if r.start <= g.number < r.end: self.warn.append(f"{name}: number {g.number} reserved here, used upstream by {g.name}")
    def enum(self, name, a, fa, u, fu):
        self.n["enum"] += 1
        up = {v.name: v.number for v in u.value}; nums = {v.number: v.name for v in u.value}
        for v in a.value:
            self.n["value"] += 1
            if v.name not in up: self.b(f"{name}.{v.name}", "enum value name", f"{v.name} = {v.number}", f"number is {nums[v.number]} upstream" if v.number in nums else None)
            elif up[v.name] != v.number: self.b(f"{name}.{v.name}", "enum value number", v.number, up[v.name])
    def service(self, name, a, fa, u, fu):
        self.n["service"] += 1
        up = {m.name: m for m in u.method}
        for m in a.method:
            self.n["method"] += 1; w = f"{name}/{m.name}"; g = up.get(m.name)
            if g is None: self.b(w, "no such method upstream", m.name, None); continue
            for what in ("input_type", "output_type", "client_streaming", "server_streaming"):
                x, y = getattr(m, what), getattr(g, what)
                if x != y: self.b(w, what, x, y)

def main():
    ap = argparse.ArgumentParser(); ap.add_argument("dir", nargs="+"); ap.add_argument("-I", action="append", default=[])
    ap.add_argument("--newer", action="append", default=[]); ap.add_argument("--json"); ap.add_argument("--quiet", action="store_true"); ap.add_argument("--allow-unknown", action="store_true", help="do not fail on envoy./xds./udpa. symbols upstream lacks")
    o = ap.parse_args()
    up, failed = upstream_files(); uix = index(up.values())
    for p in o.newer: print("newer: %s: %d files, %d symbols/fields/values added" % (os.path.basename(p), *merge_newer(uix, p)))
    fs, own = compile_dir(o.dir, o.I)
    own_files = [f for f in fs.file if f.name in own]
    aix = index(own_files); c = Check(); unknown = []
    for n, (k, p, fp) in sorted(aix.items()):
        if n not in uix:
            if not (k == "message" and p.options.map_entry): unknown.append((n, k))
            c.n["skipped"] += 1; continue
        uk, u, fu = uix[n]
        if uk != k: c.b(n, "kind", k, uk); continue
        if fp.package != fu.package: c.b(n, "package", fp.package, fu.package)
        if syntax(fp) != syntax(fu): c.b(n, "syntax", syntax(fp), syntax(fu))
        if fp.name != fu.name: c.warn.append(f"{n}: defined in {fp.name}, upstream in {fu.name}")
        getattr(c, k)(n, p, fp, u, fu)
    for n, k in unknown:
        if n.split(".")[0] in ("envoy", "xds", "udpa", "validate", "google") and not o.allow_unknown: c.b(n, f"{k} not found upstream", n, None)
        elif not o.quiet: print(f"note: {k} {n} not upstream, not checked")
    for x in c.bad: print(f"MISMATCH {x['where']}: {x['what']}: ours={x['ours']!r} upstream={x['upstream']!r}")
    if not o.quiet:
        for x in c.warn: print("warn:", x)
        for m, e in failed: print("warn: upstream module not importable:", m, e[:100])
    tot = {k: sum(1 for v in uix.values() if v[0] == k) for k in ("message", "enum", "service")}
    print(f"upstream: {len(up)} files, {tot['message']} messages, {tot['enum']} enums, {tot['service']} services")
    print(f"checked: {len(own_files)} files, {c.n['message']} messages, {c.n['field']} fields, {c.n['enum']} enums, {c.n['value']} values, {c.n['service']} services, {c.n['method']} methods; not upstream: {len(unknown)}; mismatches: {len(c.bad)}")
    if o.json: json.dump(dict(counts=c.n, mismatches=c.bad, warnings=c.warn, unknown=unknown), open(o.json, "w"), indent=1)
    if c.n["message"] + c.n["enum"] + c.n["service"] == 0: sys.exit(2)
    sys.exit(1 if c.bad else 0)
if __name__ == "__main__": main()
