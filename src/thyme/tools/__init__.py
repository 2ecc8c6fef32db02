"""Tools: build steps that users run rarely, such as compiling with mypyc."""
