"""A group's offsets as operators look after them: shown, exported, imported, deleted; by ZooKeeper and Kafka alone."""
