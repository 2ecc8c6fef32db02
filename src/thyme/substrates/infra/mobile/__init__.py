"""The mobile side of Thyme-Infrastructure: a Thyme-DCS node that uses a base station."""
