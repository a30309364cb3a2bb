"""Manifests: from a configuration and KafkaChannels to the Kubernetes objects that run them. Pure: asks no cluster.

Begin with `objects.py` (`objects_of`: the objects of each channel). `plan.py` works out what every pod needs, and refuses what
cannot work in one; `pods.py` has the pod template. The channel that a pod is given is written always in the same order, so that a
diff shows changes alone.
"""
