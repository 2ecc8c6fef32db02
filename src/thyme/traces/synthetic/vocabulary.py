"""Vocabulary: the tags and words in the posts of the synthetic football match."""

from __future__ import annotations

# Split from text, because a hundred quoted words would be hard to read.
TAG_WORDS = tuple(
    """final goal portugal france euro2016 por fra porfra live kickoff halftime fulltime champions
    fans anthem keeper save corner penalty freekick offside foul yellowcard redcard substitution
    header volley tackle post crossbar var referee whistle stadium paris lisbon porto saintdenis
    fanzone bigscreen beer scarf flag song dance pray nerves drama injury comeback captain bench
    coach tactics midfield defence striker winger legend hero underdog trophy history proud
    heartbreak party fireworks selfie view traffic metro rain moths""".split()  # noqa: SIM905
)
TEXT_WORDS = tuple(
    """the a what this that never always again here now tonight we they he you all my our their its
    ball goal game match team half minute second time chance shot pass run touch left right foot
    head net line box side crowd noise square screen people street city bar friends family kids
    singing shouting waiting watching running crying laughing hoping dreaming believing playing
    great poor lucky brave tired quick slow late early close open deep wide high low wonderful
    come go take give look see hear feel know think want need love hold keep""".split()  # noqa: SIM905
)
