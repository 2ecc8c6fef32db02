"""The evaluation of Thyme-Infrastructure: the experiments of the thesis, chapter 5."""
