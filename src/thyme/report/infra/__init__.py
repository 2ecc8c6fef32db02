"""The report of Thyme-Infrastructure: figures and claims of the thesis, chapter 5."""
