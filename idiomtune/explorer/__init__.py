"""The explorer: a corpus, its embeddings, a query's nearest documents, and the page."""
