"""Thyme-LS: objects stay with their owners, subscriptions are everywhere.

`node` puts the parts together: `owners` asks the others, `joining` learns what they know.
"""
