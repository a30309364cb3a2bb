"""Fixtures of the integration tests: real servers, shared by a session or made for one test."""
