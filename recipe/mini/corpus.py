"""Collect the text the small model is trained on: ``python -m recipe.mini.corpus FOLDER``.

Downloads the packages of ``sources.py`` with apt, unpacks them, renders them to plain text, removes repeated documents
and paragraphs, keeps some documents of permissively licensed sources out of training, and writes ``train.jsonl``,
``held_out/{en,ja,code}.jsonl`` (each line ``{"id", "language", "text"}``) and ``manifest.json``.
"""

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from recipe.disk import command
from recipe.mini.clean import excerpt, html_to_text, is_language, normalise, pick, unpadded, without_seen
from recipe.mini.sources import SOURCES, Source

HELD_OUT_DOCUMENTS = 40
HELD_OUT_BYTES = 110_000
SHORTEST = {"en": 400, "ja": 200, "code": 400}
_EXCERPT = {"en": (2_000, 3_200), "ja": (900, 1_500), "code": (2_000, 3_200)}


@dataclass(frozen=True)
class Document:
    """Clean text of one file; ``id`` is ``package:path``."""

    id: str
    language: str
    text: str


def unpack(packages: list[str], folder: Path) -> dict[str, str]:
    """Download and unpack the packages below ``folder``; returns each one's version."""
    archives = folder / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    missing = [name for name in packages if not list(archives.glob(f"{name}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=archives, check=True)
    versions = {}
    for name in packages:
        archive = next(iter(archives.glob(f"{name}_*.deb")))
        field = ["dpkg-deb", "--field", str(archive), "Version"]
        versions[name] = subprocess.run(field, check=True, capture_output=True, text=True).stdout.strip()
        if not (folder / "unpacked" / name).exists():
            subprocess.run(["dpkg-deb", "--extract", archive, folder / "unpacked" / name], check=True)
    return versions


def render_manual(path: Path) -> str:
    """One paragraph a line (no filling, no hyphenation), so that text does not carry line breaks of a terminal."""
    options = ["-Tutf8", "-Kutf8", "-mandoc", "-P-c", "-P-b", "-P-u", "-rHY=0", "-rLL=20000n", "-dAD=l"]
    content = gzip.decompress(path.read_bytes())
    done = subprocess.run(["groff", *options], input=content, capture_output=True, check=False)
    return unpadded(done.stdout.decode("utf-8", "replace")) if done.returncode == 0 else ""


def _read(task: tuple[Source, Path, Path]) -> Document | None:
    source, root, path = task
    if source.kind == "man":
        text = render_manual(path)
    else:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        text = content.decode("utf-8", "replace")
        text = html_to_text(text) if source.kind == "html" else text
    text = normalise(text)
    if len(text) < SHORTEST[source.language] or not is_language(text, source.language):
        return None
    return Document(f"{source.package}:{path.relative_to(root)}", source.language, text)


def documents(source: Source, root: Path, pool: Executor) -> list[Document]:
    """All documents of one source, in an order that depends on their names only."""
    paths = {str(path): path for glob in source.globs for path in root.glob(glob) if path.is_file()}
    paths = {name: path for name, path in paths.items() if not path.is_symlink() and "testdata" not in name}
    tasks = [(source, root, paths[name]) for name in pick(paths)]
    return [document for document in pool.map(_read, tasks, chunksize=16) if document]


def choose_held_out(found: list[Document], language: str) -> Iterator[Document]:
    """Excerpts of up to ``HELD_OUT_DOCUMENTS`` documents, each long enough for a few hundred tokens."""
    shortest, longest = _EXCERPT[language]
    by_name = {document.id: document for document in found if len(document.text) >= 1.5 * shortest}
    size = count = 0
    seen: set[bytes] = set()
    for name in pick(by_name):
        text = excerpt(without_seen(by_name[name].text, seen), longest)
        if len(text) < shortest:
            continue
        size, count = size + len(text.encode()), count + 1
        if size > HELD_OUT_BYTES or count > HELD_OUT_DOCUMENTS:
            return
        yield Document(name, language, text)


def write_lines(path: Path, found: list[Document]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(vars(document), ensure_ascii=False) + "\n" for document in found)
    path.write_text("".join(lines), encoding="utf-8")


def collect(folder: Path) -> None:
    versions = unpack(sorted({source.package for source in SOURCES}), folder)
    with ProcessPoolExecutor() as pool:
        read = [(source, documents(source, folder / "unpacked" / source.package, pool)) for source in SOURCES]
    held_out = {}
    for language in _EXCERPT:
        sources = [found for source, found in read if source.held_out and source.language == language]
        held_out[language] = list(choose_held_out([*chain.from_iterable(sources)], language))
    for language, chosen in held_out.items():
        write_lines(folder / "held_out" / f"{language}.jsonl", chosen)
    kept_out = {document.id for chosen in held_out.values() for document in chosen}
    seen: set[bytes] = set()
    for _, found in read:
        for document in found:
            if document.id in kept_out:
                without_seen(document.text, seen)
    train: list[Document] = []
    manifest = []
    for source, found in read:
        size = count = 0
        for document in found:
            text = "" if document.id in kept_out else without_seen(document.text, seen)
            if len(text) < SHORTEST[source.language] or (source.limit and size > source.limit):
                continue
            train.append(Document(document.id, source.language, text))
            size, count = size + len(text.encode()), count + 1
        entry = {"package": source.package, "version": versions[source.package], "language": source.language}
        manifest.append(entry | {"licence": source.licence, "documents": count, "bytes": size})
    write_lines(folder / "train.jsonl", train)
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    collect(parser.parse_args().folder)


if __name__ == "__main__":
    sys.exit(command(main))
