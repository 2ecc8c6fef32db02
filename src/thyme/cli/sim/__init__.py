"""Commands of the simulator: thyme sim run and thyme sim radio."""
