"""Drivers that talk HTTP to a booted engine and write down what happened. They interpret nothing."""
