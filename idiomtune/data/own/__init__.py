"""A user's own training data: tables of pairs, scored pairs or sentences, read, checked and split."""
