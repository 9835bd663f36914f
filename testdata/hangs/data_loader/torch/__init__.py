"""The parts of PyTorch that the program needs. This package hides an installed one."""
