"""The wire formats of agent runs: models, readers and writers, and no engine.

`trace` is the parsed trace, `atif` the Agent Trajectory Interchange Format, `harbor` the records of a Harbor
job, `tasks` the digests of a task folder. Everything that the three packages share about JSON, text, time and
errors is here as well, each written once.
"""
