"""Figures of a store under RocketMQ's names, and a collector for Prometheus."""
