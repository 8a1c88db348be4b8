"""A model over several devices, measured by one process per device: ``world`` (the processes and their
order), ``job`` (checks, rounds, records), ``collectives``, ``shares`` and ``probes``."""
