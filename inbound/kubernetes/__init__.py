"""Kubernetes objects that run the channels of Knative's `KafkaChannel`s: see `inbound manifests` and docs/kubernetes.md."""
