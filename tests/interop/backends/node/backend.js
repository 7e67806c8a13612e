// A gRPC server for the interoperability tests of the channel, on grpc-js, which is on Node's http2 and nghttp2.
//
// Usage: backend.js NAME [PORT]. The commands on standard input, the lines on standard output and the methods are those of the program in
// ../go: see go/main.go. It has neither TLS nor compressed responses, which grpc-js does not have for each call.

import readline from "node:readline";
import { createRequire } from "node:module";

// grpc-js is a CommonJS package beside the program or, by NODE_PATH, elsewhere.
const grpc = createRequire(import.meta.url)("@grpc/grpc-js");

const MAX_MESSAGE = 64 << 20;

const emit = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");

/** The methods, whose messages are bytes; `counts` has the calls that began, by method. */
function service(name, counts) {
  const begin = (method, call) => {
    counts[method] = (counts[method] ?? 0) + 1;
    const headers = new grpc.Metadata();
    headers.set("x-backend", name);
    for (const key of ["x-echo", "x-echo-bin"]) {
      call.metadata.get(key).forEach((value) => headers.add(key, value));
    }
    call.sendMetadata(headers);
  };
  const report = (method, call) => {
    emit({ event: "began", method });
    call.on("cancelled", () => emit({ event: "cancelled", method }));
  };
  return {
    Echo(call, respond) {
      begin("Echo", call);
      respond(null, call.request);
    },
    Collect(call, respond) {
      begin("Collect", call);
      let [messages, size] = [0, 0];
      call.on("data", (message) => {
        messages += 1;
        size += message.length;
      });
      call.on("end", () => respond(null, Buffer.from(`${messages} ${size}`)));
    },
    Expand(call) {
      begin("Expand", call);
      let [count, size] = call.request.toString().split(" ").map(Number);
      const message = Buffer.alloc(size, "x");
      const write = () => {
        for (; count > 0; count -= 1) {
          if (!call.write(message)) {
            count -= 1;
            call.once("drain", write);
            return;
          }
        }
        call.end();
      };
      write();
    },
    Chat(call) {
      begin("Chat", call);
      report("Chat", call);
      call.on("data", (message) => call.write(message));
      call.on("end", () => call.end());
    },
    Hold(call, respond) {
      begin("Hold", call);
      report("Hold", call);
      const timer = setTimeout(() => respond(null, Buffer.from("held")), Number(call.request.toString()));
      call.on("cancelled", () => clearTimeout(timer));
    },
    Fail(call, respond) {
      begin("Fail", call);
      const [code, ...words] = call.request.toString().split(" ");
      const trailers = new grpc.Metadata();
      trailers.set("x-trailer", name);
      trailers.set("x-trailer-bin", Buffer.from([0, 1, 255]));
      respond({ code: Number(code), details: words.join(" "), metadata: trailers });
    },
  };
}

/** The description of the service as grpc-js has it. */
function definition() {
  const identity = (bytes) => bytes;
  const method = (name, requestStream, responseStream) => ({
    path: `/interop.Backend/${name}`,
    requestStream,
    responseStream,
    requestSerialize: identity,
    requestDeserialize: identity,
    responseSerialize: identity,
    responseDeserialize: identity,
  });
  return {
    Echo: method("Echo", false, false),
    Collect: method("Collect", true, false),
    Expand: method("Expand", false, true),
    Chat: method("Chat", true, true),
    Hold: method("Hold", false, false),
    Fail: method("Fail", false, false),
  };
}

async function main(name, port = "0") {
  const counts = {};
  const server = new grpc.Server({
    "grpc.max_receive_message_length": MAX_MESSAGE,
    "grpc.max_send_message_length": MAX_MESSAGE,
    "grpc.so_reuseport": 0,
  });
  server.addService(definition(), service(name, counts));
  server.bindAsync(`127.0.0.1:${port}`, grpc.ServerCredentials.createInsecure(), (error, bound) => {
    if (error) {
      console.error(`backend: ${error.message}`);
      process.exit(1);
    }
    emit({ address: `127.0.0.1:${bound}` });
  });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = line.trim();
    if (command === "counts") {
      emit({ done: command, counts });
    } else if (command === "stop") {
      server.tryShutdown(() => emit({ event: "stopped" }));
      emit({ done: command });
    } else if (command === "quit") {
      emit({ done: command });
      break;
    } else if (command !== "") {
      emit({ failed: command, reason: "unknown command" });
    }
  }
  server.forceShutdown(); // at the latest when the parent process is gone
}

const [name, port, ...rest] = process.argv.slice(2);
if (name === undefined || rest.length > 0) {
  console.error("usage: backend.js NAME [PORT]");
  process.exit(2);
}
await main(name, port);
