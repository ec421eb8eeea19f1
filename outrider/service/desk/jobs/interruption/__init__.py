"""Jobs that are interrupted: for reservations, or because somebody wants their machines suspended."""
