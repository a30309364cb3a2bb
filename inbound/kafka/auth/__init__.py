"""Credentials for brokers: properties, mounted files, tokens, TLS, and refusals.

It knows no client library. Begin with `access.py`: `resolve` returns Kafka's properties with the current contents of mounted
files, each time it is called, so that rotated secrets are used. `tokens.py` fetches bearer tokens, `tls.py` makes Python's own
contexts, `refusals.py` turns the errors of both clients into one sentence with a remedy. No message has a secret.
"""
