"""SQLite store: state of a node on disk, with checksums, history chunks and a disk reserve."""
