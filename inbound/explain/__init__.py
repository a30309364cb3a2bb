"""Why a partition stands still: facts in, one cause out, and who watches over it all the time."""
