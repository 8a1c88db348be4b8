"""The frame around every page: navigation, device, jobs, URL state, routes."""
