"""What is at an image's address: size and digest, found out when a reservation is asked for.

`resolving` decides; `opening` opens files with their user's rights and no others, `hashing`
reads them, `web` asks servers, `tokens` those that want one of the site's, `buckets` object stores,
`registries` registries, `catalogue` is the site's own list.
"""

from outrider.service.images.catalogue import Catalogue, CatalogueImage
from outrider.service.images.hashing import Hashes
from outrider.service.images.opening import OpenAs, opener
from outrider.service.images.resolving import Resolver

__all__ = ["Catalogue", "CatalogueImage", "Hashes", "OpenAs", "Resolver", "opener"]
