"""The stores that serve digests: mirrors, buckets, Hugging Face."""
