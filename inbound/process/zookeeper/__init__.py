"""A process's connection to ZooKeeper, from the configuration on.

The client here knows no channel: commands use it, too. Begin with `client.py`, the only place that makes a client from a
configuration; it also finds and corrects nodes with other access rights. `coordination.py` is one connection with the
controller, the committer and the resets that run on it, and the section that replaces it as a whole.
"""
