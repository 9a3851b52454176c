"""Word lists for the extraction of entities; what each is for is said in their file."""

from __future__ import annotations

from weftline.kernel.data_files import WordFile

_LISTS = WordFile("indexing/entity_words.txt")
GIVEN_NAMES = _LISTS()["given names"]
AMBIGUOUS_NAMES = _LISTS()["ambiguous names"]
RARE_NAMES = _LISTS()["rare names"]
TITLES = _LISTS()["titles"]
PARTICLES = _LISTS()["particles"]
PERSON_VERBS = _LISTS()["person verbs"]
SPEECH_VERBS = _LISTS()["speech verbs"]
PERSON_CUES = _LISTS()["person cues"]
DETERMINERS = _LISTS()["determiners"]
COMMON_WORDS = _LISTS()["common words"]
NOT_PEOPLE = _LISTS()["not people"]
NOT_SURNAMES = _LISTS()["not surnames"]
PROJECT_WORDS = _LISTS()["project words"]
NOT_PROJECTS = _LISTS()["not projects"]
ROLES = _LISTS()["roles"]
DECORATORS = _LISTS()["decorators"]
NOT_TICKETS = _LISTS()["not tickets"]
BRANDS = _LISTS()["brands"]
EXTENSIONS = _LISTS()["extensions"]
RISKY_EXTENSIONS = _LISTS()["risky extensions"]
LIBRARIES = _LISTS()["libraries"]
PLAIN_FILES = _LISTS()["plain files"]
ROOTS = _LISTS()["roots"]
DOT_FILES = _LISTS()["dot files"]
TOP_DOMAINS = _LISTS()["top domains"]
