"""Thyme-DCS: the devices in a place become the store. `DcsNode` is one of them."""
