"""Makes the Kubernetes objects that run KafkaChannels. Pure: asks no cluster.

Begin with `objects.py` (`objects_of`: the objects of each channel). `plan.py` works out what every pod needs, and refuses what
cannot work in one; `pods.py` has the pod template. The same input always gives the same text, so a diff shows changes alone.
"""
