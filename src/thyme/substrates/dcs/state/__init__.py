"""DCS state: records that a node stores for its cell and for itself."""
