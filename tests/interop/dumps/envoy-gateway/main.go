// Writes the resources that Envoy Gateway sends to the proxies of a Gateway: its own tool egctl translates gateway.yaml, with the
// code of its server, and without Kubernetes. envoy-gateway DIRECTORY
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	admin "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	// The types inside the resources.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/health_check/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"xdskit.example/interop/dumps/dump"
)

const (
	module = "github.com/envoyproxy/gateway"
	// The Gateway in gateway.yaml. Its proxies give this name as their node's cluster.
	gateway = "shop/shop"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(directory string) error {
	version, err := goCommand("list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return err
	}
	translated, err := goCommand("tool", "egctl", "x", "translate", "--from", "gateway-api", "--to", "xds",
		"--type", "all", "--output", "json", "--file", "gateway.yaml")
	if err != nil {
		return err
	}
	resources, err := parse(translated)
	if err != nil {
		return err
	}
	out := dump.New("Envoy Gateway", strings.TrimSpace(string(version)), gateway)
	if err := out.Add("", resources); err != nil {
		return err
	}
	return out.Write(filepath.Join(directory, "gateway.json"))
}

func goCommand(arguments ...string) ([]byte, error) {
	command := exec.Command("go", arguments...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(arguments, " "), err)
	}
	return output, nil
}

// parse extracts the resources from the output of egctl, which has the form of Envoy's config_dump.
func parse(translated []byte) ([]*anypb.Any, error) {
	var output struct {
		XDS map[string]struct {
			Configs []json.RawMessage `json:"configs"`
		} `json:"xds"`
	}
	if err := json.Unmarshal(translated, &output); err != nil {
		return nil, err
	}
	var resources []*anypb.Any
	for _, config := range output.XDS[gateway].Configs {
		// The bootstrap is for a proxy's command line, and not sent.
		if strings.Contains(string(config), "envoy.admin.v3.BootstrapConfigDump") {
			continue
		}
		var section anypb.Any
		if err := protojson.Unmarshal(config, &section); err != nil {
			return nil, err
		}
		message, err := section.UnmarshalNew()
		if err != nil {
			return nil, err
		}
		inSection, err := resourcesOf(message)
		if err != nil {
			return nil, err
		}
		resources = append(resources, inSection...)
	}
	return resources, nil
}

func resourcesOf(section proto.Message) ([]*anypb.Any, error) {
	var resources []*anypb.Any
	switch section := section.(type) {
	case *admin.ListenersConfigDump:
		for _, listener := range section.DynamicListeners {
			resources = append(resources, listener.GetActiveState().GetListener())
		}
	case *admin.RoutesConfigDump:
		for _, route := range section.DynamicRouteConfigs {
			resources = append(resources, route.GetRouteConfig())
		}
	case *admin.ClustersConfigDump:
		for _, cluster := range section.DynamicActiveClusters {
			resources = append(resources, cluster.GetCluster())
		}
	case *admin.EndpointsConfigDump:
		for _, endpoints := range section.DynamicEndpointConfigs {
			resources = append(resources, endpoints.GetEndpointConfig())
		}
	default:
		return nil, fmt.Errorf("unexpected: %T", section)
	}
	return resources, nil
}
