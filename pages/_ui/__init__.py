"""What the pages are made of, in rooms on floors: a room imports rooms of the floors below it, never of its
own or one above.

    widgets < guard < routes < app < forms limits < answer
    < attention build kernels masks models scaling fusion profiler < home runs

widgets: tables, charts, text, style; guard: who may reach the app; app: frame, URL state, device, jobs, runs
on disk; forms: controls that several pages share; limits: what a device allows a call; answer: the result of
a run; then a room for each page. Streamlit does not scan this folder for pages.
"""
