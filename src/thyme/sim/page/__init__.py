"""The page: what it keeps of a recording, and its template, program and style in one file."""
