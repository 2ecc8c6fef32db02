"""DCS service: answers requests to this node's cell and delivers notifications (D17, D22)."""
