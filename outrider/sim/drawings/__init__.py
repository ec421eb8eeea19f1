"""The thesis' drawings of its algorithms, made from what the scheduler does with its examples."""
