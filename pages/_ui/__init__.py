"""What the pages share: frame, URL state, pickers, job panel, answers. Streamlit does not scan this folder
for pages."""
