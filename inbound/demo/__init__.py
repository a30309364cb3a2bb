"""The demo: real flights through a real Kafka and ZooKeeper, while consumers are killed, stopped and added."""
