"""Commands around a channel: publish, cluster, demo, new, schema, manifests.

`cluster` and `demo` run real servers on this machine (`inbound.embedded`); `new`, `schema` and `manifests` print or write files
and connect to no server. `demo` also uses `cli.spark`, to prove its own run; the others import `cli.shared` alone.

Begin reading at `publish.py`.
"""
