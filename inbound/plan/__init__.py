"""From a configuration to what can run: channels with their code.

Begin with `plan.py`. `plugins.py` finds classes (shipped, entry points, `module:Class`) and has the JSON Schema with their
options, `subscriptions.py` makes a
channel of each subscriber of the configuration and of Knative's manifests, `destinations.py` resolves their sinks,
`resets.py` has what resets can name.

Nothing here connects, runs or is changed later: a plan is a value. What of the manifests cannot be used stops alone
(docs/decisions/0070); an error of the configuration itself refuses the whole plan, with file and line.
"""
