"""`inbound offsets` shows, exports, imports, deletes and resets a group's offsets.

All commands use ZooKeeper and Kafka alone, so they work while no consumer is alive. Offsets of a stopped group change in
`inbound.offsets`, those of a running group by a reset that `inbound.controller.reset_offset` carries out; this room has the
options and the printed text. It imports `cli.shared`, and no other room of the command line.

Begin reading at `options.py`: the choice of groups and partitions; then `show.py`.
"""
