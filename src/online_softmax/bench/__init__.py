"""The benchmark: every operation against other libraries, verified before it is timed."""
