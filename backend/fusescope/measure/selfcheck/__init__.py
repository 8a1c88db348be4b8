"""The instrument's own error: equal implementations, planted slow-downs, wrong kernels, other timers.

run.py goes through the parts; each gives Rows (row.py).
"""
