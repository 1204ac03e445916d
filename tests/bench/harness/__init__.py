"""The one harness of the project's benches: rows of jobs, columns of tools, a record a line."""
