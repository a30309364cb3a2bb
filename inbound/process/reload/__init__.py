"""Hot reload: the steps from one configuration to another, all or none.

It knows channels and sections only as `Channels` and `Section`; the configuration's source and folder watch are passed in.

Begin with `changes.py`, which compares plans (pure). `reconfiguration.py` takes the steps on its own thread: each section is
tried beside the old settings (`prepare`), then put into effect (`apply`), and old parts are closed when unused (`tidy`). A
failure of one rolls all of them back. How to use it: docs/reload.md; reasons: docs/decisions/0027-hot-reload.md.
"""
