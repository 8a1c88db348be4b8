"""Charts: records and tables in, plotly figures out. One file per chart; template.py is what they all share.
No torch, no streamlit."""
