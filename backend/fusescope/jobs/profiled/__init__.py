"""One case of an operator or model under a profiler or sanitizer: the spec, the call, and the tool around
it."""
