"""Limits: what one neighbour can cost a live node, in its inbox and in the kernel."""
