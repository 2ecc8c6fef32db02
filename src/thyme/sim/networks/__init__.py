"""Networks: connect simulated nodes by ideal links or by the simulated radio."""
