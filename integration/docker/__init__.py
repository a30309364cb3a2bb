"""The same suite on containers: replicas, Kafka and ZooKeeper on networks of their own, where a Docker engine answers."""
