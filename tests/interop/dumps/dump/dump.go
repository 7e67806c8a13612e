// Package dump writes the resources that a management server sends to a node as a file for the tests.
package dump

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// Dump contains all resources that were sent to a node.
type Dump struct {
	// Server is the name of the server, with its version.
	Server    string     `json:"server"`
	Node      string     `json:"node"`
	Resources []Resource `json:"resources"`
}

// Resource is one message, in base64.
type Resource struct {
	TypeURL string `json:"type_url"`
	Name    string `json:"name"`
	Value   []byte `json:"value"`
}

// New returns an empty dump.
func New(server, version, node string) *Dump {
	return &Dump{Server: server + " " + version, Node: node}
}

// Version returns the version of a module in this program.
func Version(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}

// Add adds the resources of a response. They are serialized again, so that maps have a fixed order.
func (d *Dump) Add(_ string, resources []*anypb.Any) error {
	for _, resource := range resources {
		message, err := resource.UnmarshalNew()
		if err != nil {
			return err
		}
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil {
			return err
		}
		d.Resources = append(d.Resources, Resource{TypeURL: resource.TypeUrl, Name: name(message), Value: value})
	}
	return nil
}

// The name of a resource is its field 1, whose own name varies.
func name(message proto.Message) string {
	reflected := message.ProtoReflect()
	field := reflected.Descriptor().Fields().ByNumber(1)
	if field == nil || field.Kind() != protoreflect.StringKind {
		return ""
	}
	return reflected.Get(field).String()
}

// Write writes the dump, in the order of types and names.
func (d *Dump) Write(path string) error {
	slices.SortFunc(d.Resources, func(a, b Resource) int {
		if a.TypeURL != b.TypeURL {
			return compare(a.TypeURL, b.TypeURL)
		}
		return compare(a.Name, b.Name)
	})
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}
