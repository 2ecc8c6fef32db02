"""Web application of the gallery: serves worlds as galleries to this machine and to guests.

`server` starts it; `security` decides who may do what; `gallery_world` connects a world; `feed`
holds the events of open pages. The page is in `assets`, its sources in `frontend/`.
"""
