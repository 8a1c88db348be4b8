"""Who may reach the app: every request passes ``door.Door`` before Streamlit or a route of ours."""
