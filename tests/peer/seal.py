"""Keys, proofs and sealed messages: PROTOCOL.md, "Greeting: proofs and keys"."""
import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .wire import Refused, u64

MESSAGES_PER_KEY = 16384
TAG = 16


def mac(key, content):
    return hmac.digest(key, content, hashlib.sha256)


def derive(secret, salt, info):
    """HKDF-SHA256 with an output of 32 bytes: one block of RFC 5869."""
    return mac(mac(salt or bytes(32), secret), info + b"\x01")


def generation_key(direction_key, generation):
    return derive(direction_key, b"", b"penstock rekey" + u64(generation))


class Seal:
    """One direction of a connection."""

    def __init__(self, direction_key):
        self.direction_key = direction_key
        self.generation = self.cipher = None

    def _cipher(self, number):
        generation = number // MESSAGES_PER_KEY
        if generation != self.generation:
            self.cipher = AESGCM(generation_key(self.direction_key, generation))
            self.generation = generation
        return self.cipher

    def close(self, number, head, text):
        """The sealed text and its tag behind it."""
        return self._cipher(number).encrypt(bytes(4) + u64(number), bytes(text), bytes(head))

    def open(self, number, head, sealed):
        try:
            return self._cipher(number).decrypt(bytes(4) + u64(number), bytes(sealed), bytes(head))
        except InvalidTag as error:
            raise Refused(f"message {number}: the tag does not fit") from error
