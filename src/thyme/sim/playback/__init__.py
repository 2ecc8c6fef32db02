"""Playback: recordings of runs, and the page that plays them in a browser."""
