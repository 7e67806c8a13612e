#!/usr/bin/env bash
# Compares the project's proto/ and the table of sensitive fields with the published descriptors. Run from the project's root: .ci/check_protos.sh [DIR=proto]
# Makes a Python environment among the temporary files the first time. Exit 0: no mismatch.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${TMPDIR:-/tmp}/xdskit-check-protos
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import grpc_tools, envoy.service.discovery.v3.discovery_pb2' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" -q install grpcio-tools xds-protos setuptools
fi
"$venv/bin/python" "$here/sensitive_fields.py"
exec "$venv/bin/python" "$here/check_protos.py" "${1:-proto}" --quiet
