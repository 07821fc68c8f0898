"""`backfill bench`: what an engine's settings cost and are worth, over a sample of the user's own transcripts."""
