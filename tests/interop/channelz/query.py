"""Finds the channels to a target by channelz, as a driver of gRPC's interoperability tests does, and prints one line of JSON.

Usage: query.py ADDRESS TARGET. The line has, for each channel to the target, its state and counts, and its subchannels with
their sockets. Channels are read in pages of one.
"""

import ipaddress
import json
import sys

import grpc
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc

TIMEOUT = 20
STATES = channelz_pb2.ChannelConnectivityState.State


def channels(stub):
    """All channels, page by page."""
    start = 0
    while True:
        request = channelz_pb2.GetTopChannelsRequest(start_channel_id=start, max_results=1)
        page = stub.GetTopChannels(request, timeout=TIMEOUT)
        for channel in page.channel:
            start = max(start, channel.ref.channel_id + 1)
            yield channel
        if page.end:
            return


def address(of):
    tcp = of.tcpip_address
    return f"{ipaddress.ip_address(tcp.ip_address)}:{tcp.port}"


def numbers(data):
    return [data.calls_started, data.calls_succeeded, data.calls_failed]


def socket(stub, ref):
    shown = stub.GetSocket(channelz_pb2.GetSocketRequest(socket_id=ref.socket_id), timeout=TIMEOUT).socket
    return {
        "local": address(shown.local),
        "remote": address(shown.remote),
        "streams": shown.data.streams_started,
        "security": shown.security.WhichOneof("model"),
    }


def subchannel(stub, ref):
    request = channelz_pb2.GetSubchannelRequest(subchannel_id=ref.subchannel_id)
    shown = stub.GetSubchannel(request, timeout=TIMEOUT).subchannel
    return {
        "state": STATES.Name(shown.data.state.state),
        "target": shown.data.target,
        "sockets": [socket(stub, ref) for ref in shown.socket_ref],
    }


def main():
    _, server, target = sys.argv
    with grpc.insecure_channel(server) as connection:
        stub = channelz_pb2_grpc.ChannelzStub(connection)
        found = [channel for channel in channels(stub) if channel.data.target == target]
        servers = stub.GetServers(channelz_pb2.GetServersRequest(), timeout=TIMEOUT)
        shown = [
            {
                "state": STATES.Name(channel.data.state.state),
                "calls": numbers(channel.data),
                "subchannels": [subchannel(stub, ref) for ref in channel.subchannel_ref],
            }
            for channel in found
        ]
        print(json.dumps({"channels": shown, "servers": len(servers.server)}))


main()
