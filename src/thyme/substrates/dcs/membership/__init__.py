"""DCS membership: joining, movement, proxies and state transfer between cells (D20 to D25)."""
