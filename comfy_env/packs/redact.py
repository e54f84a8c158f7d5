"""Take secrets out of text before it is logged, shown or stored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_USERINFO = re.compile(r"(?<=://)[^/\s'\"@]+@")
_ANYTHING_BEFORE_AT = re.compile(r"(?<=://)\S*@")
_QUERY = re.compile(r"(?i)([?&][^=&\s]*(?:token|key|secret|passw|signature|sig|auth)[^=&\s]*=)[^&\s#'\"]+")
HIDDEN = "***"


def clean(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with credentials of URLs, and the given secrets wherever they stand, replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return _QUERY.sub(rf"\1{HIDDEN}", _USERINFO.sub(f"{HIDDEN}@", text))


def clean_hard(text: str) -> str:
    """Return the text with everything hidden that could be a URL's credentials, even badly written ones."""
    return clean(_ANYTHING_BEFORE_AT.sub(f"{HIDDEN}@", text))


def has_secret(text: str) -> bool:
    """Return whether a URL in the text carries credentials or a token."""
    return clean(text) != text


def secrets_of(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the passwords (or lone user names, which are tokens) in the URLs, to be hidden in a tool's output."""
    found = [urlsplit(url) for url in urls if "://" in url]
    return tuple({part.password or part.username or "" for part in found} - {""})
