"""Sources that are read by programs of this machine: ssh, sftp and rsync."""
