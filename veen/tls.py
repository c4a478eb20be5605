"""What the services of this product offer over TLS 1.2; every suite of TLS 1.3 is AEAD already."""

from __future__ import annotations

from typing import Final

AEAD_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""In OpenSSL's words: forward secrecy and authenticated encryption, and nothing with CBC."""
