"""Donors behind HTTP: pinned, resumed, patient, and never more bytes than the overlay needs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipe import whole_folder
from recipe.headers import Entry, PackError
from recipe.overlay import make
from recipe.overlay.donor import remote
from recipe.overlay.make import _build, _product
from recipe.overlay.splice import resolve
from recipe.pack import INDEX, read_pack
from recipe.remote import ATTEMPTS, Range, Repository, ranges, token
from runner.errors import InputError, StateError
from runner.model.order.overlay import PackSource
from tests.recipe.hub import NAME, REVISION, Hub, serving
from tests.recipe.overlays import SWAPPED, donor_pack, edit, job_of, recipe_of, source_pack

WANTED = PackSource(repository=NAME, revision=REVISION)
LAYER = "model.layers.1."


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return donor_pack(tmp_path_factory.mktemp("donor") / "pack")


@pytest.fixture
def hub(donor: Path) -> Iterator[Hub]:
    with serving(donor) as hub:
        yield hub


def repository(hub: Hub, folder: Path, timeout: float = 60) -> Repository:
    return Repository(NAME, REVISION, folder, hub.url, timeout=timeout, wait_seconds=0.01)


def experts(repository: Repository) -> list[Entry]:
    headers = repository.headers([LAYER])
    return [entry for header in headers for entry in header.entries if entry.name.startswith(SWAPPED)]


def same_bytes(repository: Repository, entries: list[Entry], donor: Path) -> bool:
    own = read_pack(donor).tensors
    for entry in entries:
        file, start = repository.place(entry)
        theirs = own[entry.name]
        mine = file.read_bytes()[start : start + entry.nbytes]
        if mine != theirs.file.read_bytes()[theirs.start : theirs.stop]:
            return False
    return True


def test_only_the_wanted_bytes_come(hub: Hub, donor: Path, tmp_path: Path) -> None:
    found = repository(hub, tmp_path)
    wanted = experts(found)
    found.fetch(wanted)
    assert same_bytes(found, wanted, donor)
    needed = sum(entry.nbytes for entry in wanted)
    shard = donor / wanted[0].file.name
    assert {file for file, _, _ in hub.asked if file.endswith(".safetensors")} == {shard.name}
    header = int.from_bytes(shard.read_bytes()[:8], "little") + 8
    assert hub.sent() == needed + header + 256
    assert hub.sent() < shard.stat().st_size, "never a whole shard"


def test_what_was_fetched_is_not_fetched_again(hub: Hub, donor: Path, tmp_path: Path) -> None:
    first = repository(hub, tmp_path)
    first.fetch(experts(first))
    before = len(hub.asked)
    again = repository(hub, tmp_path)
    again.fetch(experts(again))
    assert len(hub.asked) == before, "what is finished needs no network"
    key = next(key for key in again.digests() if key.endswith(str(max(e.stop for e in experts(again)))))
    (tmp_path / key).write_bytes(b"damaged")
    mended = repository(hub, tmp_path)
    mended.fetch(experts(mended))
    assert same_bytes(mended, experts(mended), donor), "a damaged range comes again"


@pytest.mark.parametrize(
    "faults", [["stall"], ["cut"], ["busy", "busy"], ["cut", "busy", "stall", "cut"]], ids="-".join
)
def test_trouble_on_the_way_costs_no_byte_twice(faults: list[str], hub: Hub, donor: Path, tmp_path: Path) -> None:
    found = repository(hub, tmp_path, timeout=2)
    wanted = experts(found)
    before, hub.only_from = hub.sent(), 1000
    hub.faults.extend(faults)
    found.fetch(wanted)
    assert not hub.faults
    assert same_bytes(found, wanted, donor)
    assert hub.sent() - before == sum(entry.nbytes for entry in wanted)


def test_a_server_that_ignores_ranges_is_refused_before_its_bytes_come(hub: Hub, tmp_path: Path) -> None:
    found = repository(hub, tmp_path)
    wanted = experts(found)
    hub.only_from = 1000
    hub.faults.append("whole")
    with pytest.raises(InputError, match="ignores ranges"):
        found.fetch(wanted)


def test_a_server_that_names_no_version_is_refused(hub: Hub, tmp_path: Path) -> None:
    """Nothing would show that the ranges of one file are of one version."""
    hub.tag = ""
    with pytest.raises(InputError, match="which version"):
        experts(repository(hub, tmp_path / "neither"))
    hub.changed_at = "Mon, 30 Nov 2026 10:00:00 GMT"
    found = repository(hub, tmp_path / "by time")
    wanted = experts(found)
    found.fetch(wanted)
    hub.changed_at = "Mon, 30 Nov 2026 10:00:01 GMT"
    again = repository(hub, tmp_path / "by time")
    for path in again.folder.glob("*.safetensors.*"):
        path.unlink()
    with pytest.raises(InputError, match="changed while"):
        again.fetch(wanted)


def test_a_file_that_changes_is_refused(hub: Hub, tmp_path: Path) -> None:
    found = repository(hub, tmp_path)
    wanted = experts(found)
    hub.tag = '"two"'
    with pytest.raises(InputError, match='entity tag "one"') as caught:
        found.fetch(wanted)
    assert '"two"' in caught.value.found
    with pytest.raises(InputError, match="changed while"):
        resumed = repository(hub, tmp_path)
        resumed.fetch(wanted)


def test_another_range_or_commit_than_asked_for_is_refused(hub: Hub, tmp_path: Path) -> None:
    found = repository(hub, tmp_path)
    wanted = experts(found)
    hub.only_from = 1000
    hub.faults.append("other")
    with pytest.raises(InputError, match="another range"):
        found.fetch(wanted)
    hub.commit = "f" * 40
    with pytest.raises(InputError, match="another commit"):
        found.fetch(wanted)


def test_the_beginning_of_a_range_that_an_earlier_process_left_is_not_trusted(
    hub: Hub, donor: Path, tmp_path: Path
) -> None:
    """A power cut leaves zeros where bytes had not reached the disk; nobody noted what they were."""
    before, now = repository(hub, tmp_path / "before"), repository(hub, tmp_path / "now")
    before.fetch(experts(before))
    wanted, whole = experts(now), list(before.folder.glob("*.safetensors.*"))
    assert whole
    for one in whole:
        (now.folder / f".{one.name}.part").write_bytes(bytes(one.stat().st_size // 2))
    now.fetch(wanted)
    assert same_bytes(now, wanted, donor)


@pytest.mark.parametrize("fault", ["encoded", "longer", "shorter"])
def test_a_body_that_is_not_its_range_is_refused_and_nothing_of_it_kept(
    fault: str, hub: Hub, donor: Path, tmp_path: Path
) -> None:
    found = repository(hub, tmp_path)
    wanted = experts(found)
    hub.only_from = 1000
    hub.faults.append(fault)
    with pytest.raises(InputError, match="not the range itself"):
        found.fetch(wanted)
    assert not any(part.stat().st_size for part in tmp_path.glob(".*.part"))
    found.fetch(wanted)
    assert same_bytes(found, wanted, donor)


@pytest.mark.parametrize("faults", [["short"], ["cut", "short"], ["identity"], ["chunks"]], ids="-".join)
def test_a_body_that_ends_too_early_is_fetched_anew_and_a_plain_one_is_taken(
    faults: list[str], hub: Hub, donor: Path, tmp_path: Path
) -> None:
    """A whole body of fewer bytes than its range is no beginning of it."""
    found = repository(hub, tmp_path)
    wanted = experts(found)
    before, hub.only_from = hub.sent(), 1000
    hub.faults.extend(faults)
    found.fetch(wanted)
    assert not hub.faults
    assert same_bytes(found, wanted, donor)
    assert (hub.sent() - before > sum(entry.nbytes for entry in wanted)) == ("short" in faults)


def test_a_refusal_is_told_at_once_and_silence_after_patience(hub: Hub, tmp_path: Path) -> None:
    found = repository(hub, tmp_path)
    wanted = experts(found)
    hub.only_from = 1000
    hub.faults.append("gone")
    with pytest.raises(InputError, match="HTTP 403"):
        found.fetch(wanted)
    hub.faults.extend(["busy"] * ATTEMPTS)
    with pytest.raises(StateError, match="HTTP 503"):
        found.fetch(wanted)
    assert not hub.faults


def test_a_donor_without_these_layers_is_refused(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such tensors"):
        repository(hub, tmp_path).headers(["mtp.0."])


def test_an_index_that_promises_what_a_shard_lacks_is_refused(donor: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(donor, tmp_path / "donor"))
    index = json.loads((broken / INDEX).read_text())
    file = index["weight_map"][f"{SWAPPED}.0.up_proj.suh"]
    index["weight_map"]["mtp.fc.weight"] = file
    (broken / INDEX).write_text(json.dumps(index))
    with serving(broken) as hub, pytest.raises(PackError, match=r"mtp\.fc\.weight"):
        repository(hub, tmp_path / "work").headers([LAYER])


@pytest.mark.parametrize(
    "name", ["../../x.safetensors", "/tmp/x.safetensors", "sub/x.safetensors", "..", ".x", "a\n", 3]
)
def test_an_index_that_names_a_file_outside_is_refused_before_that_file_is_asked_for(
    name: object, donor: Path, tmp_path: Path
) -> None:
    hostile = Path(shutil.copytree(donor, tmp_path / "donor"))
    edit(hostile / INDEX, lambda index: index["weight_map"].update({f"{SWAPPED}.0.up_proj.suh": name}))
    with serving(hostile) as hub:
        for _ in range(2):  # what was kept is no better
            with pytest.raises(PackError, match="no plain name"):
                repository(hub, tmp_path / "work").headers([LAYER])
        assert {file for file, _, _ in hub.asked} == {INDEX}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["donor", "work"]


def test_a_single_file_needs_no_index(donor: Path, tmp_path: Path) -> None:
    folder = tmp_path / "donor"
    folder.mkdir()
    shutil.copyfile(donor / "model-00003-of-00004.safetensors", folder / "model.safetensors")
    with serving(folder) as hub:
        found = repository(hub, tmp_path / "work")
        assert experts(found)


def test_a_fixed_header_digest_holds(hub: Hub, tmp_path: Path) -> None:
    pinned = WANTED.model_copy(update={"header_digest": "0" * 64})
    with pytest.raises(InputError, match="not the one the order fixed"):
        remote(repository(hub, tmp_path), ["model.layers.1"], pinned)


def test_an_overlay_from_afar_is_the_overlay_from_here(hub: Hub, donor: Path, tmp_path: Path) -> None:
    source = read_pack(source_pack(tmp_path / "source"))
    near, far = (job_of(tmp_path / name, source.folder, recipe_of(donor)) for name in ("near", "far"))
    hub.faults.extend(["cut", "busy", "cut"])
    afar = remote(repository(hub, far.work / "donor"), ["model.layers.1"], WANTED)
    plan = resolve(recipe_of(donor), source, afar.entries)
    with whole_folder.building(far.product) as partial:
        _build(far, source, afar, plan, partial)
    here = make(near)
    assert _product(far, plan).digests["payload"] == here.digests["payload"]


def test_an_order_with_a_repository_is_made_by_the_hubs_own_library(
    hub: Hub, donor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing stands in for it: address and token are the library's."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert "user-agent" in token()
    recipe = recipe_of(donor).model_copy(update={"donor": WANTED})
    made = make(job_of(tmp_path / "far", source_pack(tmp_path / "source"), recipe))
    near = make(job_of(tmp_path / "near", tmp_path / "source", recipe_of(donor)))
    assert made.digests["payload"] == near.digests["payload"]


def test_neighbours_share_a_request_and_strangers_do_not() -> None:
    file, other = Path("a"), Path("b")
    entries = [Entry(str(start), "U8", (4,), file, start, start + 4) for start in (8, 0, 4, 16)]
    entries.append(Entry("0", "U8", (4,), other, 20, 24))
    assert ranges(entries) == [Range("a", 0, 12), Range("a", 16, 20), Range("b", 20, 24)]


@pytest.mark.parametrize("name", ["a/b/c", "../x/y", "owner/na me", "http://x/y", "-owner/name", "owner/na..me", ""])
def test_a_name_that_no_hub_has_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no name of a repository"):
        Repository(name, REVISION, tmp_path / "donor")
    assert not (tmp_path / "donor").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b'{"files": [], "ranges": 3}', b"[" * 10**5])
def test_damaged_notes_cost_a_second_request_and_no_more(content: bytes, hub: Hub, donor: Path, tmp_path: Path) -> None:
    first = repository(hub, tmp_path)
    first.fetch(experts(first))
    for name in ("ranges.json", INDEX):
        (tmp_path / name).write_bytes(content)
    again = repository(hub, tmp_path)
    wanted = experts(again)
    again.fetch(wanted)
    assert same_bytes(again, wanted, donor)


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"weight_map": 5}', b"\xff\xfe", b"[" * 10**5])
def test_an_index_that_is_none_is_refused(content: bytes, donor: Path, tmp_path: Path) -> None:
    lying = Path(shutil.copytree(donor, tmp_path / "lying"))
    (lying / INDEX).write_bytes(content)
    with serving(lying) as hub, pytest.raises(PackError, match="index has no weight map"):
        repository(hub, tmp_path / "work").headers([LAYER])


NOWHERE: dict[str, dict[str, str]] = {
    "a circle": {"Location": "?again"},
    "no web": {"Location": "file:///etc/passwd"},
    "no encoding": {"Content-Encoding": "gzip"},
}


@pytest.mark.parametrize("misleads", NOWHERE.values(), ids=NOWHERE)
def test_an_answer_that_leads_to_nothing_is_refused_at_once(misleads: dict[str, str], hub: Hub, tmp_path: Path) -> None:
    """Whether the index is asked for or a range; a further try would not mend it, so none is made."""
    known = repository(hub, tmp_path / "known")
    wanted = experts(known)
    hub.misleads, hub.asked = misleads, []
    with pytest.raises(InputError, match="leads to nothing"):
        repository(hub, tmp_path / "new").headers([LAYER])
    assert len(hub.asked) <= 21, "once, and the redirects of it"
    if "Location" in misleads:  # the bytes of a range are never decoded
        with pytest.raises(InputError, match="leads to nothing"):
            known.fetch(wanted)
    hub.misleads = {}
    known.fetch(wanted)
    assert same_bytes(known, wanted, hub.folder)


def test_an_endpoint_that_is_no_address_is_refused(tmp_path: Path) -> None:
    for endpoint in ("hub.example", "http://[::1"):
        found = Repository(NAME, REVISION, tmp_path, endpoint, wait_seconds=0.01)
        with pytest.raises(InputError, match="leads to nothing"):
            found.headers([LAYER])


def test_an_index_without_an_end_is_refused(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with what a server sends."""
    size = (hub.folder / INDEX).stat().st_size
    monkeypatch.setattr("recipe.remote.SMALL", size - 1)
    with pytest.raises(InputError, match="more than such a file may hold"):
        repository(hub, tmp_path / "one").headers([LAYER])
    monkeypatch.setattr("recipe.remote.SMALL", size)
    assert repository(hub, tmp_path / "two").headers([LAYER])
