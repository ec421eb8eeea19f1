"""The thesis' story with real guests: machines make way for a reservation, beside the simulator's word."""
