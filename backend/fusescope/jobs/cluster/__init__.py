"""Sweeps, traverses and searches on several devices and hosts: Dask carries, the submitting job writes.

``deploy`` gives a client of a cluster, ``crew`` shares units of work among its workers, ``at_worker`` is what
a worker does, ``cases`` and ``schemes`` say what a unit is. Dask is imported inside functions.
"""
