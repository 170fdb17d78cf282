"""The brief: what a craftsperson is given, made from the same order and gates that will judge."""
