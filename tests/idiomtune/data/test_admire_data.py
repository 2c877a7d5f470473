"""AdMIRe's tables and images: what is read, where images are found, and what is wrong is named."""

import csv
import shutil
from functools import partial
from pathlib import Path

import pytest

from idiomtune.data.admire import find_image, folder_of, read_items
from idiomtune.data.names import AdmireSplit
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.errors import DataMissingError, UserError
from tests.programs import refused

SAMPLE = SAMPLE_ROOT / "admire"
NAMES = [f"{i}.png" for i in range(1, 6)]
ROW = {"compound": "cold feet", "subset": "Train", "sentence_type": "idiomatic"}
ROW |= {"sentence": "He got cold feet.", "expected_order": str(NAMES[::-1])}
for number, name in enumerate(NAMES, 1):
    ROW |= {f"image{number}_name": name, f"image{number}_caption": f"Picture {number}."}
HEADER = list(ROW)


def write(folder: Path, *rows: dict[str, str], split: str = "train", header: list[str] = HEADER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"subtask_a_{split}.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, delimiter="\t", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return folder


def test_an_item_as_it_is_used(tmp_path: Path) -> None:
    row = ROW | {"sentence": 'She said: "No Cold-Feet now!"', "image2_caption": "A foot.\\n\\n It is  cold."}
    row["expected_order"] = str(["3.png", "1.png", "2.png", "5.png", "4.png"])
    (item,) = read_items(write(tmp_path, row), "train").items
    assert (item.id, item.compound, item.sense) == ("train_2", "cold feet", "idiomatic")
    assert item.span is not None
    assert item.sentence[slice(*item.span)] == "Cold-Feet"
    assert [c.name for c in item.candidates] == NAMES
    assert item.candidates[1].caption == "A foot. It is cold."
    assert item.gold_ranks == (1, 2, 0, 4, 3)
    assert item.candidates[0].path is None  # nobody asked for images


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("compound", "?!"), ("sentence", " "), ("image1_name", "2.png"), ("sentence_type", "figurative")),
        *(("expected_order", "['1.png'"), ("expected_order", str([*NAMES[:4], "9.png"]))),
        *(("expected_order", ""), ("image5_caption", None)),
    ],
)
def test_what_is_wrong_is_named(field: str, value: str | None, tmp_path: Path) -> None:
    if value is None:  # a column that is not there
        refused(lambda: read_items(write(tmp_path, ROW, header=HEADER[:-1]), "train"), field)
        return
    folder = write(tmp_path, ROW | {"sentence": "Cold feet!"}, ROW | {field: value})
    row = f"row 3 (compound {value if field == 'compound' else 'cold feet'})"
    refused(lambda: read_items(folder, "train"), "subtask_a_train.tsv", row, field)


def test_a_compound_that_is_not_in_its_sentence_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    split = read_items(write(tmp_path, ROW, ROW | {"sentence": "His feet were cold."}), "train")
    assert [item.span is None for item in split.items] == [False, True]
    assert "His feet were cold." in caplog.text


def test_images_are_found_in_each_layout(tmp_path: Path) -> None:
    ours = read_items(SAMPLE, "train", check_images=True)
    at = {c.name: c.path for item in ours.items for c in item.candidates}
    assert all(path is not None and path.is_file() for path in at.values())
    assert any(path is not None and path.parent.name == "lion_s share" for path in at.values())

    # As published: the table beside its images.
    shutil.copytree(SAMPLE / "images" / "train", tmp_path / "train")
    shutil.copy(SAMPLE / "subtask_a_train.tsv", tmp_path / "train")
    for path in (tmp_path / "train").glob("*/*.jpg"):
        path.rename(path.with_suffix(".png"))
    (tmp_path / "train" / "lion_s share").rename(tmp_path / "train" / "lion's share")
    for folder in (tmp_path, tmp_path / "train"):
        published = read_items(folder, "train", check_images=True)
        assert all(c.path and c.path.name == c.name for item in published.items for c in item.candidates)


# As published, with each language in a folder of its own.
PUBLISHED: dict[AdmireSplit, str] = {
    **{"train": "EN/train/train", "dev": "EN/dev/dev", "test": "EN/test/test", "extended": "EN/xeval/xe"},
    **{"test_pt": "PT/test/test", "extended_pt": "PT/xeval/xp"},
}


def test_every_split_as_published(tmp_path: Path) -> None:
    for place in PUBLISHED.values():
        images = tmp_path / Path(place).parent / "cold feet"
        images.mkdir(parents=True)
        write(images.parent, ROW | {"sentence": f"Cold feet, {place}."}, split=Path(place).name)
        for name in NAMES:
            (images / name).touch()
    for split, place in PUBLISHED.items():
        read = read_items(tmp_path, split, check_images=True)
        (item,) = read.items
        assert (item.id, item.sentence, read.has_gold) == (f"{split}_2", f"Cold feet, {place}.", True)
        images = tmp_path / Path(place).parent / "cold feet"
        assert {c.path for c in item.candidates} == {images / name for name in NAMES}
        assert folder_of(sorted(tmp_path.rglob("*.tsv")), split) == tmp_path
    shutil.rmtree(tmp_path / "EN")  # tables of one language are never taken for the other
    write(tmp_path / "english", ROW, split="test")
    write(tmp_path / "xeval", ROW, split="xe")  # of a language's folder
    assert len(read_items(tmp_path, "extended").items) == 1
    shutil.rmtree(tmp_path / "PT")
    for missing in ("test_pt", "extended_pt"):  # a copy without the later splits lacks data, and is not wrong
        with pytest.raises(DataMissingError, match=r"PT.*data\.admire="):
            read_items(tmp_path, missing)
    assert folder_of([tmp_path / "PT" / "test" / "subtask_a_test.tsv"], "extended") is None
    assert folder_of([tmp_path / "xeval" / "subtask_a_xe.tsv"], "no such split") is None


def test_real_tables(real_data: Path) -> None:
    train = read_items(real_data / "admire", "train", check_images=True)
    dev = read_items(real_data / "admire", "dev", check_images=True)
    assert (len(train.items), len(dev.items)) == (50, 15)
    assert [item.sense for item in train.items].count("idiomatic") == 29
    assert all(item.span is not None for item in (*train.items, *dev.items))
    assert (train.has_gold, dev.has_gold) == (True, False)
    assert not any("\\n" in c.caption for item in train.items for c in item.candidates)


@pytest.mark.parametrize(
    "name", ["{outside}", "../../../../secret", "..\\..\\secret", "C:secret", "..", "x\0y"]
)
def test_names_that_are_paths_are_refused(name: str, tmp_path: Path) -> None:
    """A picture outside of the data folder is neither opened nor put into a report."""
    folder = tmp_path / "data"
    (tmp_path / "secret.png").touch()
    (folder / "images" / "train" / "cold feet").mkdir(parents=True)
    for field, ending in (("compound", ""), ("image5_name", ".png")):
        given = name.format(outside=tmp_path / "secret") + ending * (name != "..")
        row = ROW | {field: given}
        row["expected_order"] = str([row[f"image{i}_name"] for i in range(1, 6)])
        for check in (True, False):
            read = partial(read_items, write(folder, row), "train", check_images=check)
            refused(read, "subtask_a_train.tsv", "row 2", f"'{field}'")
        compound, image = (given, "1.png") if field == "compound" else ("cold feet", given)
        assert find_image(folder, "train", compound, image) is None


def test_links_out_of_the_data_folder_are_refused(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    inside = write(folder, ROW) / "images" / "train" / "cold feet"
    for path in (inside, elsewhere):
        path.mkdir(parents=True)
    for number in (1, 3, 4, 5):
        (inside / f"{number}.jpg").touch()
    assert len(read_items(folder, "train").items) == 1  # nobody looks for images
    link = inside / "2.jpg"
    (tmp_path / "secret.jpg").touch()
    for _ in range(2):  # missing, and a link
        with pytest.raises(UserError, match=r"row 2 .*'image2_name'"):
            read_items(folder, "train", check_images=True)
        assert find_image(folder, "train", "cold feet", "2.png") is None
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / "secret.jpg")
    assert find_image(folder, "../data/images/train", "cold feet", "1.png") is None
    link.unlink()
    link.symlink_to(inside / "1.jpg")  # within the folder they may lie anyhow
    (tmp_path / "linked").symlink_to(folder)  # as may the folder itself
    (item,) = read_items(tmp_path / "linked", "train", check_images=True).items
    assert all(candidate.path is not None for candidate in item.candidates)
    inside.rename(elsewhere / "cold feet")
    inside.symlink_to(elsewhere / "cold feet")
    with pytest.raises(UserError, match="'image1_name'"):
        read_items(folder, "train", check_images=True)
