module google.golang.org/grpc/xdskit/rings

go 1.23.0

require (
	github.com/cespare/xxhash/v2 v2.3.0
	google.golang.org/grpc v1.75.1
)

require (
	golang.org/x/sys v0.33.0 // indirect
	google.golang.org/protobuf v1.36.6 // indirect
)
