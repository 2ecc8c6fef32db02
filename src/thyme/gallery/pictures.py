"""Pictures: makes the thumbnail of a file and removes what its camera tells about place and device.

Entry point: `prepare_file`. The type of a file is found by its bytes, never by its name. JPEG, PNG
and WebP lose their metadata without being encoded again; HEIC and AVIF become JPEG; videos lose
their metadata in place; anything else is a file without a picture. Decoding hostile pictures is
up to a process of its own: `picture_worker`.
"""

from __future__ import annotations

import io
import warnings
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from thyme import InputError
from thyme.distribution import install_hint
from thyme.gallery.metadata_removal import clean_jpeg, clean_mp4, clean_png, clean_webp
from thyme.gallery.summary import FILE_TYPE

PIXELS_MAX = 100_000_000
PICTURE_BYTES_MAX = 128 * 2**20
"""Maximum size of a picture, which is decoded in memory; videos and files may be larger."""
THUMBNAIL_PX = 320
_THUMBNAIL_BYTES = 16 * 2**10
_STILL_TYPES = ("image/jpeg", "image/png", "image/webp")
_CONVERTED = ("image/heic", "image/avif")
_ORIENTATION, _DATE_TIME, _EXIF_IFD, _DATE_TAKEN = 0x0112, 0x0132, 0x8769, 0x9003
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


class PictureError(InputError):
    """A file cannot be published as it is: a broken picture, or one with too many pixels."""

    code = "bad_picture"


class PictureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a file that is ready to be published."""

    type: str = FILE_TYPE
    width: int = 0
    height: int = 0
    taken_us: int | None = None
    thumbnail: bytes = b""


def find_type(head: bytes) -> str:
    """The type of a file by its first bytes; `FILE_TYPE` unless it is a picture or video."""
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "video/webm"
    if head[4:8] == b"ftyp":
        brands = [head[8:12], *(head[at : at + 4] for at in range(16, min(len(head), 64), 4))]
        if brands[0] in (b"avif", b"avis") or b"avif" in brands:
            return "image/avif"
        return "image/heic" if brands[0] in _HEIC_BRANDS else "video/mp4"
    return FILE_TYPE


def prepare_file(
    path: Path, *, keep_location: bool = False, still: Path | None = None
) -> PictureFacts:
    """Makes the thumbnail of a file and, unless `keep_location`, removes its metadata, in place.

    The thumbnail of a video is made from `still`, if there is such a file with a picture.
    """
    with path.open("rb") as file:
        kind = find_type(file.read(64))
    if kind.startswith("image/"):
        return _prepare_picture(path, kind, keep_location=keep_location)
    if kind == "video/mp4" and not keep_location:
        clean_mp4(path)
    if kind.startswith("video/") and still is not None:
        return PictureFacts(type=kind, thumbnail=_read_still(still))
    return PictureFacts(type=kind)


def _read_still(path: Path) -> bytes:
    """The thumbnail of a video; empty if its still picture is missing or cannot be read."""
    try:
        data = path.read_bytes()
        kind = find_type(data[:64])
        return _read_picture(data, kind)[0].thumbnail if kind in _STILL_TYPES else b""
    except (PictureError, OSError, ValueError, SyntaxError, IndexError, EOFError, MemoryError):
        return b""


def _prepare_picture(path: Path, kind: str, *, keep_location: bool) -> PictureFacts:
    if path.stat().st_size > PICTURE_BYTES_MAX:
        raise PictureError(f"a picture has at most {PICTURE_BYTES_MAX >> 20} MB")
    data = path.read_bytes()
    try:
        facts, data, orientation = _read_picture(data, kind)
        if not keep_location or kind in _CONVERTED:
            taken = _format_taken(facts.taken_us)
            match facts.type:
                case "image/jpeg":
                    data = clean_jpeg(data, _minimal_exif(orientation, taken))
                case "image/png":
                    data = clean_png(data)
                case "image/webp":
                    data = clean_webp(data)
            path.write_bytes(data)
    except PictureError:
        raise
    except (OSError, ValueError, SyntaxError, IndexError, EOFError, MemoryError) as error:
        raise PictureError(f"the picture is damaged and cannot be read ({error})") from error
    return facts


def _read_picture(data: bytes, kind: str) -> tuple[PictureFacts, bytes, int]:
    """The facts of a picture, its bytes, converted if browsers cannot show it, and the number of
    its orientation."""
    from PIL import Image, ImageOps

    if kind == "image/heic":
        _add_heic_decoder()
    Image.MAX_IMAGE_PIXELS = PIXELS_MAX
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(io.BytesIO(data)) as picture:
                exif = picture.getexif()
                taken_us = _parse_taken(
                    exif.get_ifd(_EXIF_IFD).get(_DATE_TAKEN) or exif.get(_DATE_TIME)
                )
                orientation = exif.get(_ORIENTATION, 1)
                orientation = orientation if orientation in range(1, 9) else 1
                width, height = picture.size
                if kind in _CONVERTED:
                    upright = ImageOps.exif_transpose(picture).convert("RGB")
                    width, height = upright.size
                    data, orientation = _encode_jpeg(upright), 1
                    shown = upright
                else:
                    picture.draft("RGB", (2 * THUMBNAIL_PX, 2 * THUMBNAIL_PX))
                    shown = picture
                    if orientation >= 5:
                        width, height = height, width
                shown.thumbnail((THUMBNAIL_PX, THUMBNAIL_PX))
                thumbnail = _encode_thumbnail(ImageOps.exif_transpose(shown))
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise PictureError(
                f"the picture has more than {PIXELS_MAX // 1_000_000} million pixels"
            ) from error
    facts = PictureFacts(
        type="image/jpeg" if kind in _CONVERTED else kind,
        width=width,
        height=height,
        taken_us=taken_us,
        thumbnail=thumbnail,
    )
    return facts, data, orientation


def _add_heic_decoder() -> None:
    try:
        import pi_heif
    except ImportError:
        raise PictureError(
            f"HEIC pictures need one more package: {install_hint('gallery')}"
        ) from None
    pi_heif.register_heif_opener()


def _encode_jpeg(picture: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=90)  # type: ignore[attr-defined]
    return out.getvalue()


def _encode_thumbnail(picture: object) -> bytes:
    """Encodes a thumbnail as WebP, with fewer details if it would be large."""
    has_alpha = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info  # type: ignore[attr-defined]
    plain = picture.convert("RGBA" if has_alpha else "RGB")  # type: ignore[attr-defined]
    plain.info = {}  # no colour profile, no metadata
    encoded = b""
    for quality in (72, 50, 30):
        out = io.BytesIO()
        plain.save(out, "WEBP", quality=quality, method=3)
        encoded = out.getvalue()
        if len(encoded) <= _THUMBNAIL_BYTES:
            break
    return encoded


def _minimal_exif(orientation: int, taken: str | None) -> bytes:
    """The EXIF data of a cleaned picture: orientation and time; nothing if there is neither."""
    from PIL import Image

    exif = Image.Exif()
    if orientation != 1:
        exif[_ORIENTATION] = orientation
    if taken is not None:
        exif[_DATE_TIME] = taken
    return exif.tobytes() if len(exif) else b""


_EXIF_TIME = "%Y:%m:%d %H:%M:%S"


def _parse_taken(text: object) -> int | None:
    """The time of a photo in microseconds since 1970, its clock taken as UTC."""
    try:
        taken = datetime.strptime(str(text).strip("\0 "), _EXIF_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(taken.timestamp()) * 1_000_000


def _format_taken(taken_us: int | None) -> str | None:
    if taken_us is None:
        return None
    return datetime.fromtimestamp(taken_us // 1_000_000, UTC).strftime(_EXIF_TIME)
