"""Files, tables and traces over HTTP, and the Perfetto UI."""
