"""Gallery: photos in a world, for scripts and for the web page of `thyme gallery`.

    async with thyme.connect("http://127.0.0.1:8473") as world:
        await gallery.publish_photo(world, Path("goal.jpg"), tags=["goal"], by="Ana")
        async for photo in gallery.follow(world, "goal & !replay"):
            print(photo.summary.by, photo.summary.title, len(photo.summary.thumbnail))

The package is a client of the public API. Pictures are the task of `pictures`, the web
application that of `web`. It needs the packages of the extra `gallery`.
"""

from thyme.gallery.photos import GALLERY_TAG, Photo, follow, publish_photo
from thyme.gallery.pictures import PictureError
from thyme.gallery.summary import PhotoSummary, decode_summary

__all__ = [
    "GALLERY_TAG",
    "Photo",
    "PhotoSummary",
    "PictureError",
    "decode_summary",
    "follow",
    "publish_photo",
]
