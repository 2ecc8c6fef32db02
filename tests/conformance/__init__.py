"""Every clause M1–M33 as a test that runs on every substrate."""
