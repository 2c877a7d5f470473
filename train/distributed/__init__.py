"""Several processes, the devices they compute on, sharded weights."""
