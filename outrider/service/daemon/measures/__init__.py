"""What the service counts and says of itself: metrics, health, what users take."""
