"""Pictures: thumbnails, and files without the place where they were made."""

from __future__ import annotations

import asyncio
import io
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.gallery.served import a_jpeg
from thyme.gallery import PictureError, decode_summary
from thyme.gallery.metadata_removal import clean_jpeg, clean_png, clean_webp
from thyme.gallery.picture_worker import PictureWorker
from thyme.gallery.pictures import find_type, prepare_file
from thyme.gallery.summary import FILE_TYPE, PhotoSummary, clean_file_name, encode_summary

GPS_IFD, MAKE, ORIENTATION, DATE_TIME = 0x8825, 0x010F, 0x0112, 0x0132


def an_exif(orientation: int = 1) -> Image.Exif:
    """What a phone writes: its maker, its orientation, the time and the place."""
    exif = Image.Exif()
    exif[MAKE] = "Camera Works"
    exif[ORIENTATION] = orientation
    exif[DATE_TIME] = "2016:07:10 21:49:00"
    exif.get_ifd(GPS_IFD).update({1: "N", 2: (48.0, 55.0, 28.0)})
    return exif


def opened(path: Path) -> Image.Image:
    """A picture file, read as a whole."""
    return Image.open(io.BytesIO(path.read_bytes()))


def a_file(folder: Path, data: bytes) -> Path:
    path = folder / "upload"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("kind", "type_"), [("JPEG", "image/jpeg"), ("WEBP", "image/webp")])
def test_place_and_device_are_removed_and_the_pixels_stay(
    tmp_path: Path, kind: str, type_: str
) -> None:
    out = io.BytesIO()
    Image.effect_noise((80, 60), 80).convert("RGB").save(out, kind, exif=an_exif())
    path = a_file(tmp_path, out.getvalue())
    before = list(Image.open(io.BytesIO(out.getvalue())).get_flattened_data())

    facts = prepare_file(path)

    cleaned = opened(path)
    assert (facts.type, facts.width, facts.height) == (type_, 80, 60)
    assert list(cleaned.get_flattened_data()) == before
    assert MAKE not in cleaned.getexif()
    assert not cleaned.getexif().get_ifd(GPS_IFD)
    assert b"Camera Works" not in path.read_bytes()
    assert facts.taken_us == 1_468_187_340_000_000


def test_whoever_wants_it_keeps_the_place(tmp_path: Path) -> None:
    path = a_file(tmp_path, a_jpeg(exif=an_exif()))
    prepare_file(path, keep_location=True)
    assert opened(path).getexif().get_ifd(GPS_IFD)[1] == "N"


def test_orientation_is_respected_by_thumbnail_and_size_and_stays_in_the_file(
    tmp_path: Path,
) -> None:
    path = a_file(tmp_path, a_jpeg(size=(640, 480), exif=an_exif(orientation=6)))

    facts = prepare_file(path)

    thumbnail = Image.open(io.BytesIO(facts.thumbnail))
    assert (facts.width, facts.height) == (480, 640)
    assert thumbnail.size == (240, 320)
    assert opened(path).getexif()[ORIENTATION] == 6


def test_heic_becomes_a_jpeg_that_every_browser_shows(tmp_path: Path) -> None:
    pytest.importorskip("pi_heif", reason="there is no wheel of pi-heif for this machine")
    path = a_file(tmp_path, (Path(__file__).parent / "photo.heic").read_bytes())
    facts = prepare_file(path)
    assert (facts.type, facts.width, facts.height) == ("image/jpeg", 64, 48)
    assert opened(path).format == "JPEG"


def test_a_video_loses_its_place_without_moving_its_bytes(tmp_path: Path) -> None:
    def box(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body) + 8) + kind + body

    place = box(b"udta", box(b"\xa9xyz", b"\0\x12\x15\xc7+48.92+002.36/"))
    video = box(b"ftyp", b"isom\0\0\0\0isommp42")
    video += box(b"moov", box(b"mvhd", bytes(20)) + place) + box(b"mdat", b"frames" * 9)
    path = a_file(tmp_path, video)

    assert prepare_file(path).type == "video/mp4"

    cleaned = path.read_bytes()
    assert b"+48.92" not in cleaned
    assert len(cleaned) == len(video)
    assert cleaned.index(b"frames") == video.index(b"frames")


def test_a_video_has_the_thumbnail_of_its_still_picture(tmp_path: Path) -> None:
    video = a_file(tmp_path, b"\x1a\x45\xdf\xa3 a video")
    still = tmp_path / "still"
    assert prepare_file(video, still=still).thumbnail == b""
    for bad in (b"", b"\xff\xd8\xff broken", b"<svg onload='alert(1)'/>", b"\x1a\x45\xdf\xa3"):
        still.write_bytes(bad)
        assert prepare_file(video, still=still).thumbnail == b""

    still.write_bytes(a_jpeg(size=(640, 360), exif=an_exif()))
    facts = prepare_file(video, still=still)
    thumbnail = Image.open(io.BytesIO(facts.thumbnail))
    assert (facts.type, thumbnail.format, thumbnail.size) == ("video/webm", "WEBP", (320, 180))
    assert b"Camera Works" not in facts.thumbnail


def test_a_pixel_flood_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    bomb += chunk(b"IDAT", zlib.compress(bytes(1_000_000))) + chunk(b"IEND", b"")

    with pytest.raises(PictureError, match="million pixels"):
        prepare_file(a_file(tmp_path, bomb))


@pytest.mark.parametrize(
    "data",
    [
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"<html><script>alert(1)</script></html>",
        b"%PDF-1.7",
        b"MZ\x90\0",
        b"",
    ],
)
def test_what_could_run_in_a_browser_is_only_a_file(tmp_path: Path, data: bytes) -> None:
    facts = prepare_file(a_file(tmp_path, data))
    assert (facts.type, facts.thumbnail) == (FILE_TYPE, b"")


def test_a_damaged_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="damaged"):
        prepare_file(a_file(tmp_path, a_jpeg(size=(200, 200))[:300]))


@given(st.binary(max_size=200), st.sampled_from([b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBP", b""]))
def test_no_bytes_make_the_removal_fail_in_another_way(data: bytes, head: bytes) -> None:
    for clean in (clean_jpeg, clean_png, clean_webp):
        try:
            clean(head + data)
        except (ValueError, IndexError):
            continue


@given(st.binary(max_size=64))
def test_every_file_has_a_type(head: bytes) -> None:
    assert "/" in find_type(head)


@given(st.binary(max_size=300))
def test_a_summary_of_a_stranger_is_read_whatever_it_is(data: bytes) -> None:
    summary = decode_summary(data)
    assert len(summary.title) <= 500
    assert decode_summary(b"thyme-photo/1\n" + data).thumbnail == b""


def test_a_summary_comes_back_without_paths_and_unknown_types() -> None:
    told = PhotoSummary(
        title="<b>79'</b>\n", by="Ana\0", file_name="../../etc/passwd", type="text/html"
    )
    assert decode_summary(encode_summary(told)) == PhotoSummary(
        title="<b>79'</b>", by="Ana", file_name="passwd", type=FILE_TYPE
    )


@pytest.mark.parametrize(
    ("given_name", "name"),
    [("a.jpg", "a.jpg"), ("C:\\x\\a.jpg", "a.jpg"), ("..", ""), ("a<b>.jpg", "a_b_.jpg")],
)
def test_file_names_lose_what_is_special(given_name: str, name: str) -> None:
    assert clean_file_name(given_name) == name


def test_a_worker_that_dies_or_hangs_is_replaced(tmp_path: Path) -> None:
    async def story() -> None:
        worker = PictureWorker()
        await worker.start()
        process = worker._process
        assert process is not None
        process.kill()
        await process.wait()
        facts = await worker.prepare(a_file(tmp_path, a_jpeg()))
        assert facts.type == "image/jpeg"
        await worker.close()

        impatient = PictureWorker(seconds_max=0.0)
        with pytest.raises(PictureError, match="too long"):
            await impatient.prepare(a_file(tmp_path, a_jpeg()))
        await impatient.close()

    asyncio.run(story())
