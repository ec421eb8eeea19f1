"""Packages of Outrider for Debian and for RHEL: trees of files, and what makes packages of them."""
