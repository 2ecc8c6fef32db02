"""Every clause M1–M33 as a story that any substrate can be put through."""
