"""What comes from outside (a job's JSON, a command line, a URL, a mask's text, a run's files), described and
checked in one way.

``parameters``: keys of a mapping, completed and checked by ``complete``. ``cases``: what a key that is left
out means. ``typed``: JSON objects as dataclasses, whose fields are such parameters.
"""

from fusescope.core.schema.parameters import REQUIRED, Parameter, check_int, complete, either, size

__all__ = ["REQUIRED", "Parameter", "check_int", "complete", "either", "size"]
