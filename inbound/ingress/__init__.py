"""The ingress: CloudEvents by HTTP, acknowledged by Kafka, then answered with 202."""
