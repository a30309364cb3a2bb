"""`spark replay`: a channel's processor over a range of its log, on executors, without touching the group."""
