package main

import (
	"encoding/json"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/serviceconfig"
)

func init() { balancer.Register(rpcBehaviorBuilder{}) }

// rpcBehaviorBuilder makes round_robin with the metadata rpc-behavior, for the case custom_lb.
type rpcBehaviorBuilder struct{}

type rpcBehaviorConfig struct {
	serviceconfig.LoadBalancingConfig `json:"-"`
	RPCBehavior                       string `json:"rpcBehavior"`
}

func (rpcBehaviorBuilder) Name() string { return "test.RpcBehaviorLoadBalancer" }

func (rpcBehaviorBuilder) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	config := &rpcBehaviorConfig{}
	return config, json.Unmarshal(text, config)
}

func (rpcBehaviorBuilder) Build(connection balancer.ClientConn, options balancer.BuildOptions) balancer.Balancer {
	policy := &rpcBehavior{ClientConn: connection}
	policy.Balancer = balancer.Get(roundrobin.Name).Build(policy, options)
	return policy
}

// rpcBehavior is the policy above its child, and the connection of the child.
type rpcBehavior struct {
	balancer.ClientConn
	balancer.Balancer
	config *rpcBehaviorConfig
}

func (r *rpcBehavior) UpdateClientConnState(state balancer.ClientConnState) error {
	r.config = state.BalancerConfig.(*rpcBehaviorConfig)
	state.BalancerConfig = nil
	return r.Balancer.UpdateClientConnState(state)
}

func (r *rpcBehavior) UpdateState(state balancer.State) {
	state.Picker = &rpcBehaviorPicker{child: state.Picker, behavior: r.config.RPCBehavior}
	r.ClientConn.UpdateState(state)
}

type rpcBehaviorPicker struct {
	child    balancer.Picker
	behavior string
}

func (p *rpcBehaviorPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := p.child.Pick(info)
	if err == nil {
		result.Metadata = metadata.Join(result.Metadata, metadata.Pairs("rpc-behavior", p.behavior))
	}
	return result, err
}
