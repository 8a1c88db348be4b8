"""Small elements that pages share: tables, charts, text."""
