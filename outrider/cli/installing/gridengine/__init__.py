"""Installing beside Grid Engine: its objects are changed by qconf, and get back what they said."""
