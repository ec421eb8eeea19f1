"""Container images made into one file before they are promised: squashfs, SIF or an OCI bundle, by a program
without rights.

`archive` reads a layer's entries, `tree` lays layers over one another, `settings` is what an image says of
its own programs, `streaming` writes what is left as one archive, `sif` the frame around a squashfs file,
`bundle` what OCI runtimes read; `program` does all that in a process of its own. `layers` brings what a
registry has, `made` keeps results, `converter` is what the service asks. Nothing of an image is ever unpacked
into a folder.
"""
