"""Posts: reads posts of several formats, and generates synthetic ones."""
