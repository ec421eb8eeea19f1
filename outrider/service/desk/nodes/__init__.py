"""The nodes' pools as the desk knows them: state, orders, events, sources of images."""
