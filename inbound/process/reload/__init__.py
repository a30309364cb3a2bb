"""Hot reload: the steps from one configuration to another, all or none.

It knows channels and sections only as `Channels` and `Section`; who reads files and watches folders is passed in.

Begin with `changes.py`, which compares plans (pure). `reconfiguration.py` takes the steps on its own thread: each section is
tried beside what runs (`prepare`), then put into effect (`apply`), and old parts are closed when unused (`tidy`). One that
fails takes all of them back. How to use it: docs/reload.md; reasons: docs/decisions/0027-hot-reload.md.
"""
