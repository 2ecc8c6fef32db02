"""Thyme-DCS: the devices of an area together form the store. Entry point: `DcsNode`."""
