"""A consumer under load while its configuration is edited at random, well and badly: `make test-reload`."""
