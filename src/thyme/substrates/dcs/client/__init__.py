"""DCS client: sends the requests of a node's application to cells (D11 to D19)."""
