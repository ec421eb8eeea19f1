"""What pyxis' importer and the site's converter have in common; the standard library and cachemgr alone."""
