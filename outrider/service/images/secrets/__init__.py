"""What opens images that not everybody may read: how it is sealed, and how the site learns its own."""
