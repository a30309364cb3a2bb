"""The plan turns a configuration into channels with their code.

Begin with `plan.py`. `plugins.py` finds classes (shipped, entry points, `module:Class`) and builds the JSON Schema with their
options. `subscriptions.py` makes a channel of each subscriber in the configuration and in Knative's manifests;
`manifest_options.py` and `destinations.py` read the options and the sinks of the latter. `resets.py` lists what a reset can
name.

Nothing here connects or runs, and a plan never changes: it is a value. A manifest that cannot be used stops alone
(docs/decisions/0070); an error in the configuration itself refuses the whole plan, with file and line.
"""
