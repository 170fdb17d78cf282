"""How the small pack was made: corpus, tokenizer, needles, model, training and baking."""
