"""``musetrace compare``: two runs beside each other, as text, Markdown, a JUnit suite or JSON."""
