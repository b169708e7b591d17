"""The part of Roost that ships whole to the host: jobs, agents, artifacts, telemetry and the contract with the console."""
