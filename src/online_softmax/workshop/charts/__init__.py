"""Charts that only the workshop draws."""
