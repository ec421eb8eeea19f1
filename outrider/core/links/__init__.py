"""The links' schedules: transfers with a deadline, transfers without, and both on one link."""
