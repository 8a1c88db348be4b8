"""The disposable index over all runs, in profiles/.index/: deleting it costs only time.

``runs``: one row per run, an Arrow table in memory that a Parquet file keeps for the next process.
``records``: the records of batches of runs as Parquet files, each written once under a name of its own; a
manifest says which batch counts for which run. ``database``: DuckDB over both, and over results files.

Readers and writers of many processes meet here. No process reads a file that another replaces or deletes
meanwhile, and where nothing can be written (a full disk, a folder that may only be read) or a process that
holds the lock was stopped, queries are answered from memory and from the run folders.
"""
