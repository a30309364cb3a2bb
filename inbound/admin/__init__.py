"""The admin port shows a process's state, and takes operations.

Begin with `listener.py` (AdminServer: the routes and their order). `routes.py` answers GET (health, status, metrics) and POST
(operations); `client.py` is for commands that ask a running process; `status_page/` is one HTML document without a build step.
The port shows snapshots and passes operations on; it changes nothing on its own, and knows no channel: the process gives it
functions.
"""
