"""A book as values that outlive the process, and the book made of them again."""
