"""Certificates of the webhook server: issue, store, renew and serve them.

- `certs.names`      the names that a serving certificate is for, validated
- `certs.keypair`    a certificate and its private key as PEM, checked to belong together
- `certs.authority`  creates the authority and issues the serving leaf that it signs
- `certs.renewal`    decides whether a leaf or an authority is due, as a pure predicate
- `certs.files`      writes and reads key pairs as files
- `certs.source`     where a key pair comes from: files, or memory
- `certs.succession` decides which change is due, over the years of leaves and authorities
- `certs.secret`     the Secret that all of it lies in
- `certs.reload`     serves a key pair over TLS and takes up its successor without a restart

No module reads the clock: callers pass the time as an aware `datetime`. Every error that a user can
cause is a `certs.errors.CertificateError`.
"""
