"""Images in registries of containers and artefacts: references, manifests, and how registries are asked."""
