"""outriderd: events in, the core asked, decisions written down and carried out.

`desk` decides, `web` is the way to it for users, `nodes` and `images` are the world, `daemon` is the
process around them all. What these say to each other is here: `requests`, `answers`, `ports`.
"""
