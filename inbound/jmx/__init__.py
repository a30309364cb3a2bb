"""The JMX face: what the process knows of itself as beans, under `/jmx` and `/jolokia`. See docs/jmx.md."""
