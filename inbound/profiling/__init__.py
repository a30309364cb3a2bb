"""Profiles of a running process, over HTTP: what `go tool pprof` opens, and flame graphs. Imported only where configured."""
