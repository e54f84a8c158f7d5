"""The files a simple index of wheels offers, read from its pages; a folder is such an index too."""

from __future__ import annotations

import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from comfy_env.errors import BuildFailed
from comfy_env.packs.redact import clean

SECONDS = 30.0


@dataclass(frozen=True)
class Link:
    """A file's name and where it is."""

    name: str
    url: str


def links(index: str, package: str, env: str) -> tuple[Link, ...]:
    """Return the files of a package's page, else those of the index's one page; raises BuildFailed."""
    folder = _folder(index)
    if folder is not None:
        return tuple(Link(file.name, file.as_uri()) for file in sorted(folder.rglob("*.whl")))
    base = index.rstrip("/") + "/"
    for page in (f"{base}{canonicalize_name(package)}/", f"{base}{package}/", base):
        found = _page(page, env)
        if found is not None:
            return found
    raise BuildFailed(f"{clean(index)} answers with no page of {package}", env=env, hint="is it the right index?")


def _folder(index: str) -> Path | None:
    parts = urlsplit(index)
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(index)
    return path if "://" not in index or parts.scheme == "file" else None


def _page(url: str, env: str) -> tuple[Link, ...] | None:
    """Return the files a page links to, None where there is no such page."""
    try:
        with urllib.request.urlopen(_request(url), timeout=SECONDS) as answer:
            parser = _Links(answer.geturl())
            parser.feed(answer.read().decode("utf-8", "replace"))
            return tuple(parser.found)
    except urllib.error.HTTPError as error:
        with error:
            if error.code in (403, 404):
                return None
        raise BuildFailed(f"{clean(url)} answers {error.code} {error.reason}", env=env) from None
    except OSError as error:
        raise BuildFailed(f"{clean(url)} cannot be reached: {clean(str(error))}", env=env, hint="check the network and the proxy") from None


def _request(url: str) -> urllib.request.Request:
    """Return a request with the URL's credentials, if any, where a server looks for them."""
    parts = urlsplit(url)
    if not parts.username:
        return urllib.request.Request(url)
    secret = b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode()
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return urllib.request.Request(bare, headers={"Authorization": f"Basic {secret}"})


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.found: list[Link] = []
        self._base = base

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href") if tag == "a" else None
        if target:
            url = urljoin(self._base, target)
            self.found.append(Link(unquote(urlsplit(url).path.rpartition("/")[2]), url))
