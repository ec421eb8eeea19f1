"""What is at an image's address: size and digest, found out when a reservation is asked for.

`resolving` decides; `opening` opens files with their user's rights and no others, `hashing`
reads them, `web` asks servers, `tokens` those that want one of the site's, `buckets` object stores,
`registries` registries, `catalogue` is the site's own list.
"""
