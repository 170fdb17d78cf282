"""What is wrong with an order, one kind of fault a module: each check takes records and yields faults."""
