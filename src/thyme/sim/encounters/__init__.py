"""Encounter simulator: contacts between devices, and messages during contacts, without a MAC.

`contacts` computes contacts from movement, `contact_files` reads recorded ones, `network` moves
messages during contacts, `run` simulates a scenario.
"""
