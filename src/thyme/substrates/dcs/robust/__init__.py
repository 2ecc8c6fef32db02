"""DCS robust profile: anti-entropy, backups, re-announcement, replica upkeep (B1 to B3, B6)."""
