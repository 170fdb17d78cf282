"""The Debian packages the small model was trained on, with the licence each one's copyright file states."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One binary package and which of its files are read.

    ``kind`` is ``html`` (also Mallard pages), ``man`` or ``plain``; ``globs`` are relative to the unpacked package;
    ``limit`` caps the clean bytes taken (0: all); ``held_out`` allows documents of it to be kept for evaluation.
    """

    package: str
    language: str
    kind: str
    globs: tuple[str, ...]
    licence: str
    limit: int = 0
    held_out: bool = False


_HTML = ("**/*.html", "**/*.html.gz")
_MAN = ("usr/share/man/man*/*.gz",)
_PYTHON = ("**/*.py",)

SOURCES: tuple[Source, ...] = (
    # English
    Source("postgresql-doc-15", "en", "html", _HTML, "PostgreSQL", held_out=True),
    Source("python3.11-doc", "en", "plain", ("**/_sources/**/*.txt",), "PSF-2.0", held_out=True),
    Source("manpages", "en", "man", _MAN, "per page: Linux-man-pages-copyleft, BSD, GPL-2+, public domain"),
    Source("manpages-dev", "en", "man", _MAN, "per page: Linux-man-pages-copyleft, BSD, GPL-2+, public domain"),
    Source("perl-doc", "en", "plain", ("**/*.pod",), "GPL-1+ or Artistic"),
    Source("git-doc", "en", "plain", ("**/*.txt",), "GPL-2"),
    Source("vim-doc", "en", "html", _HTML, "Vim and OPL-1+"),
    Source("libreoffice-help-en-us", "en", "html", _HTML, "MPL-2.0"),
    Source("debian-handbook", "en", "html", ("**/html/en-US/*.html",), "GPL-2+ or CC-BY-SA-3.0"),
    Source("debian-reference-en", "en", "html", ("**/*.en.html",), "GPL-2+"),
    Source("debian-policy", "en", "html", _HTML, "GPL-2+"),
    Source("debian-faq", "en", "html", _HTML, "notice-preserving permission"),
    Source("debian-edu-doc-en", "en", "html", _HTML, "GPL-2+ and GPL-3+"),
    Source("debmake-doc", "en", "html", ("**/*.en.html",), "MIT"),
    Source("developers-reference", "en", "html", _HTML, "GPL-2"),
    Source("installation-guide-amd64", "en", "html", ("**/en/*.html",), "GPL-2"),
    Source("gnome-user-docs", "en", "html", ("usr/share/help/C/**/*.page",), "CC-BY-SA-3.0"),
    # Japanese
    Source("libreoffice-help-ja", "ja", "html", _HTML, "MPL-2.0", held_out=True),
    Source("manpages-ja", "ja", "man", ("usr/share/man/ja/man*/*.gz",), "per page: BSD, GPL-2+, LDP, MIT and others"),
    Source("manpages-ja-dev", "ja", "man", ("usr/share/man/ja/man*/*.gz",), "per page: BSD, GPL-2+, LDP and others"),
    Source("gimp-help-ja", "ja", "html", _HTML, "GFDL-NIV-1.2+"),
    Source("lilypond-doc-html-ja", "ja", "html", ("**/*.ja.html",), "GFDL-1.3+"),
    Source("debian-handbook", "ja", "html", ("**/html/ja-JP/*.html",), "GPL-2+ or CC-BY-SA-3.0"),
    Source("debian-reference-ja", "ja", "html", ("**/*.ja.html",), "GPL-2+"),
    Source("debian-policy-ja", "ja", "html", _HTML, "GPL-2+"),
    Source("debian-faq-ja", "ja", "html", _HTML, "notice-preserving permission"),
    Source("debian-edu-doc-ja", "ja", "html", _HTML, "GPL-2+ and GPL-3+"),
    Source("developers-reference-ja", "ja", "html", _HTML, "GPL-2"),
    Source("maint-guide-ja", "ja", "html", _HTML, "GPL-2+"),
    Source("aptitude-doc-ja", "ja", "html", _HTML, "GPL-2+"),
    Source("installation-guide-amd64", "ja", "html", ("**/ja/*.html",), "GPL-2"),
    Source("gnome-user-docs", "ja", "html", ("usr/share/help/ja/**/*.page",), "CC-BY-SA-3.0"),
    # Code
    Source("libpython3.11-stdlib", "code", "plain", _PYTHON, "PSF-2.0", held_out=True),
    Source("python3-django", "code", "plain", _PYTHON, "BSD-3-Clause", held_out=True),
    Source("python3-networkx", "code", "plain", _PYTHON, "BSD-3-Clause"),
    Source("python3-sqlalchemy", "code", "plain", _PYTHON, "MIT"),
    Source("python3-twisted", "code", "plain", _PYTHON, "MIT", limit=5_000_000),
    Source("python3-matplotlib", "code", "plain", _PYTHON, "PSF-2.0 style"),
    Source("python3-sklearn", "code", "plain", _PYTHON, "BSD-3-Clause", limit=5_000_000),
    Source("python3-pandas", "code", "plain", _PYTHON, "BSD-3-Clause", limit=6_000_000),
    Source("python3-sympy", "code", "plain", _PYTHON, "BSD-3-Clause", limit=6_000_000),
    Source("golang-1.19-src", "code", "plain", ("usr/share/go-1.19/src/**/*.go",), "BSD-3-Clause", limit=10_000_000),
)
