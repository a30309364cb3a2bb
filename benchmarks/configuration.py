"""What the configurations of several benchmarks have in common. To be formatted with zookeeper, bootstrap and ledger."""

from __future__ import annotations

#: The servers, any admin port, a ledger of the benchmark's own, and no long wait at the start.
SERVERS = """\
zookeeper: {{hosts: "{zookeeper}"}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: {ledger}}}
controller: {{join_delay: 500ms}}
"""
