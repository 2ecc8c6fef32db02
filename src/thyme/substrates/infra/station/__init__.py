"""The base station of Thyme-Infrastructure: worlds, popular items, and the links between venues."""
