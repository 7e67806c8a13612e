"""A gRPC server for the interoperability tests of the channel, on grpcio, which is C-core.

Usage: backend.py NAME [PORT [CERTIFICATE KEY [CLIENT_CA]]]. The commands on standard input, the lines on standard output and
the methods are those of the program in ../go: see go/main.go.
"""

import asyncio
import collections
import json
import pathlib
import sys

import grpc
import grpc.aio

MAX_MESSAGE = 64 << 20
CODES = {code.value[0]: code for code in grpc.StatusCode}


class Backend:
    """The server's name, and the calls that began, by method."""

    def __init__(self, name):
        self.name = name
        self.counts = collections.Counter()

    def handlers(self):
        """The methods, whose messages are bytes."""
        return grpc.method_handlers_generic_handler(
            "interop.Backend",
            {
                "Echo": grpc.unary_unary_rpc_method_handler(self.echo),
                "Collect": grpc.stream_unary_rpc_method_handler(self.collect),
                "Expand": grpc.unary_stream_rpc_method_handler(self.expand),
                "Chat": grpc.stream_stream_rpc_method_handler(self.chat),
                "Hold": grpc.unary_unary_rpc_method_handler(self.hold),
                "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            },
        )

    async def begin(self, method, context):
        """Counts the call, and sends the headers, so that a client can wait for them."""
        self.counts[method] += 1
        received = context.invocation_metadata()
        if any(key == "x-compress" for key, _ in received):
            context.set_compression(grpc.Compression.Gzip)
        echoed = [(key, value) for key, value in received if key in ("x-echo", "x-echo-bin")]
        # C-core has the names of all types together; clients of the tests have no addresses.
        names = context.auth_context().get("x509_subject_alternative_name", ())
        client = [("x-client", ",".join(sorted(name.decode() for name in names)))] if names else []
        await context.send_initial_metadata([("x-backend", self.name), *client, *echoed])

    async def echo(self, message, context):
        await self.begin("Echo", context)
        return message

    async def collect(self, messages, context):
        await self.begin("Collect", context)
        count, size = 0, 0
        async for message in messages:
            count += 1
            size += len(message)
        return f"{count} {size}".encode()

    async def expand(self, message, context):
        await self.begin("Expand", context)
        count, size = map(int, message.split())
        for _ in range(count):
            yield b"x" * size

    async def chat(self, messages, context):
        with reported("Chat"):
            await self.begin("Chat", context)
            async for message in messages:
                yield message
            # The end of the stream looks the same if the client has cancelled it; the cancellation itself arrives later.
            await asyncio.sleep(0.2)

    async def hold(self, message, context):
        with reported("Hold"):
            await self.begin("Hold", context)
            await asyncio.sleep(int(message) / 1000)
            return b"held"

    async def fail(self, message, context):
        await self.begin("Fail", context)
        code, _, text = message.decode().partition(" ")
        trailers = (("x-trailer", self.name), ("x-trailer-bin", b"\x00\x01\xff"))
        await context.abort(CODES[int(code)], text, trailers)


class reported:
    """Reports that a call began, and that it was cancelled."""

    def __init__(self, method):
        self.method = method

    def __enter__(self):
        emit({"event": "began", "method": self.method})

    def __exit__(self, kind, *_):
        if kind is asyncio.CancelledError:
            emit({"event": "cancelled", "method": self.method})


def emit(fields):
    print(json.dumps(fields), flush=True)


async def stop(server):
    await server.stop(grace=600)
    emit({"event": "stopped"})


def credentials(certificate, key, client_ca=None):
    """TLS: a certificate, its key, and the authority of client certificates."""
    pair = (pathlib.Path(key).read_bytes(), pathlib.Path(certificate).read_bytes())
    if client_ca is None:
        return grpc.ssl_server_credentials([pair])
    return grpc.ssl_server_credentials([pair], pathlib.Path(client_ca).read_bytes(), require_client_auth=True)


async def main(name, port="0", *files):
    backend = Backend(name)
    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        ("grpc.max_send_message_length", MAX_MESSAGE),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((backend.handlers(),))
    if files:
        port = server.add_secure_port(f"127.0.0.1:{port}", credentials(*files))
    else:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    emit({"address": f"127.0.0.1:{port}"})
    stopping = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.strip():
            case "":
                pass
            case "counts":
                emit({"done": "counts", "counts": backend.counts})
            case "stop":
                stopping = stopping or asyncio.create_task(stop(server))
                emit({"done": "stop"})
            case "quit":
                emit({"done": "quit"})
                break
            case command:
                emit({"failed": command, "reason": "unknown command"})
    await server.stop(grace=None)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3, 5, 6):
        sys.exit("usage: backend.py NAME [PORT [CERTIFICATE KEY [CLIENT_CA]]]")
    asyncio.run(main(*sys.argv[1:]))
