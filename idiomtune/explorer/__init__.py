"""What models find: a corpus, its embeddings, a query's nearest documents, and the page that shows them."""
