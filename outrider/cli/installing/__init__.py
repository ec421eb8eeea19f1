"""What an administrator installs with: `outrider init`, `outrider doctor`, `outrider nodes deploy`."""
