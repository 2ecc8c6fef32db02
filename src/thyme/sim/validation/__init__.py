"""Validation: compares the simulated radio with reference data of ns-3 (S3)."""
