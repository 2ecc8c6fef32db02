"""Thyme-Infrastructure: base stations that help mobile nodes and join venues."""
