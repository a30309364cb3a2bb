"""The admin port of a process: health, status, metrics, operations, the status page; and its client.

It shows snapshots and passes operations on; it neither starts nor changes anything on its own, and knows no channel: the process
gives it functions. Begin with `listener.py` (AdminServer: which routes there are, and in which order). `routes.py` answers GET and
POST; `client.py` is for commands that ask a running process; `status_page/` is one HTML document without a build step.
"""
