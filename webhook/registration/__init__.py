"""Webhook configurations, leader election, drift, and the certificate Secret."""
