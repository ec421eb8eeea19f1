"""What can be looked at. Nothing here changes anything."""
