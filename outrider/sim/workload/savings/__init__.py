"""Would it help here: a site's accounting replayed, as it was and with images that are there in time."""
