"""Certificates of the webhook server: issue, store and rotate them.

- `certs.names`      the names that a serving certificate is for, validated
- `certs.keypair`    a certificate and its private key as PEM: checks, and when a renewal is due
- `certs.authority`  creates the CA, and issues the serving certificate that it signs
- `certs.files`      writes and reads key pairs as files
- `certs.secret`     the Secret with CA and serving certificate, and the rotation of both

No module reads the clock: callers pass the time as an aware `datetime`. Every error that a user can
cause is a `certs.errors.CertificateError`.
"""
