"""What is found, in words: one copy for the terminal, the report and the page. No plotting, no printing."""
