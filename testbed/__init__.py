"""Several hosts on one machine: for tests, benchmarks, demonstrations. Nothing of it is installed."""
