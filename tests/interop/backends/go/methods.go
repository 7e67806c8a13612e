package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // registers the compressor
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// service describes the methods. Unary ones are streams of one message, as they are on the wire.
func (b *backend) service() *grpc.ServiceDesc {
	description := &grpc.ServiceDesc{ServiceName: "interop.Backend", HandlerType: (*any)(nil)}
	for _, method := range []struct {
		name       string
		isReported bool
		handle     func(grpc.ServerStream) error
	}{
		{"Echo", false, echo},
		{"Collect", false, collect},
		{"Expand", false, expand},
		{"Chat", true, chat},
		{"Hold", true, hold},
		{"Fail", false, b.fail},
	} {
		description.Streams = append(description.Streams, grpc.StreamDesc{
			StreamName: method.name, ClientStreams: true, ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				return b.handle(stream, method.name, method.isReported, method.handle)
			},
		})
	}
	return description
}

func (b *backend) handle(
	stream grpc.ServerStream, method string, isReported bool, handle func(grpc.ServerStream) error,
) error {
	b.count(method)
	headers := metadata.Pairs("x-backend", b.name)
	received, _ := metadata.FromIncomingContext(stream.Context())
	for _, key := range []string{"x-echo", "x-echo-bin"} {
		headers.Append(key, received.Get(key)...)
	}
	if names, ok := clientNames(stream.Context()); ok {
		headers.Append("x-client", names)
	}
	if err := stream.SetHeader(headers); err != nil {
		return err
	}
	if len(received.Get("x-compress")) > 0 {
		if err := grpc.SetSendCompressor(stream.Context(), "gzip"); err != nil {
			return err
		}
	}
	if isReported {
		emit(map[string]any{"event": "began", "method": method})
	}
	err := handle(stream)
	if isReported && stream.Context().Err() != nil {
		emit(map[string]any{"event": "cancelled", "method": method})
	}
	return err
}

func echo(stream grpc.ServerStream) error {
	message, err := receive(stream)
	if err != nil {
		return err
	}
	return stream.SendMsg(message)
}

func collect(stream grpc.ServerStream) error {
	messages, size := 0, 0
	for {
		message, err := receive(stream)
		if errors.Is(err, io.EOF) {
			return stream.SendMsg(fmt.Appendf(nil, "%d %d", messages, size))
		}
		if err != nil {
			return err
		}
		messages++
		size += len(message)
	}
}

func expand(stream grpc.ServerStream) error {
	var messages, size int
	if err := scan(stream, "%d %d", &messages, &size); err != nil {
		return err
	}
	for range messages {
		if err := stream.SendMsg(bytes.Repeat([]byte("x"), size)); err != nil {
			return err
		}
	}
	return nil
}

func chat(stream grpc.ServerStream) error {
	// The headers are sent before the first message, so that a client can wait for them.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		message, err := receive(stream)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
}

func hold(stream grpc.ServerStream) error {
	var milliseconds int
	if err := scan(stream, "%d", &milliseconds); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		return stream.SendMsg([]byte("held"))
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func (b *backend) fail(stream grpc.ServerStream) error {
	message, err := receive(stream)
	if err != nil {
		return err
	}
	code, text, _ := bytes.Cut(message, []byte(" "))
	var number uint32
	if _, err := fmt.Sscan(string(code), &number); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	stream.SetTrailer(metadata.Pairs("x-trailer", b.name, "x-trailer-bin", "\x00\x01\xff"))
	return status.Error(codes.Code(number), string(text))
}

func receive(stream grpc.ServerStream) ([]byte, error) {
	var message []byte
	err := stream.RecvMsg(&message)
	return message, err
}

// scan reads values from the text of a message.
func scan(stream grpc.ServerStream, format string, values ...any) error {
	message, err := receive(stream)
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(string(message), format, values...); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}
