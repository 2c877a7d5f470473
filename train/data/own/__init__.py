"""A user's own training data: tables of pairs, scored pairs or labelled sentences, read, checked and split."""
