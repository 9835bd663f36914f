"""As much of PyTorch as the program needs. As a package it goes before one that is installed."""
