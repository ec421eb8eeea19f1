"""Reservations: admission, the book of those accepted, and changes to them."""
