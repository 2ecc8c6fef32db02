"""Synthetic operations and posts: the football match and the lecture."""
