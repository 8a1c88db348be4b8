"""Work over several devices, numbers → numbers: the laws of Amdahl and Gustafson fitted, the cost of a
collective, the time of a layout predicted, communication that is hidden behind arithmetic."""
