"""Word lists of the question grammar."""

from __future__ import annotations

import re

CONTRACTIONS = {
    "isn't": "is not", "aren't": "are not", "doesn't": "does not", "don't": "do not",
    "can't": "can not", "cannot": "can not", "couldn't": "could not", "wouldn't": "would not",
    "hasn't": "has not", "haven't": "have not", "it's": "it is", "wasn't": "was not",
    "won't": "will not", "isnt": "is not", "doesnt": "does not", "cant": "can not",
    "shouldn't": "should not", "they're": "they are", "that's": "that is", "didn't": "did not",
}  # fmt: skip
BE = {"is", "are", "was", "were"}
AUX = {"does", "do", "did", "can", "could", "will", "would", "might", "may", "should", "must",
        "has", "have"}  # fmt: skip
IT = {"it", "this", "that", "they", "he", "she", "these", "one", "those", "its"}
NOUN_SUBJECT = {
    "object", "item", "thing", "word", "secret", "answer", "person", "animal", "place", "creature",
    "mystery", "things", "objects", "job", "food", "plant", "someone", "individual", "vehicle",
    "building", "device", "tool", "character",
}  # fmt: skip
YOU = {"you", "i", "we", "people", "one", "someone", "somebody", "humans", "human", "person",
        "anyone", "everyone", "anybody", "everybody", "man", "adults"}  # fmt: skip
CHILDREN = {"children", "kids", "child", "kid"}
LEAD = {"so", "ok", "okay", "well", "hmm", "and", "then", "now", "question", "alright", "please",
         "hm", "um", "first", "next", "but"}  # fmt: skip
NOT_FOR_CHILDREN = {"drink", "weapon", "use_cutting", "money_like", "use_cooking", "vehicle"}
HEADS = {
    "something": "", "anything": "", "thing": "", "object": "object", "item": "", "things": "",
    "someone": "person", "somebody": "person", "person": "person", "people": "person",
    "somewhere": "place", "place": "place", "animal": "animal", "creature": "animal",
    "one": "", "profession": "job", "job": "job", "occupation": "job",
    "device": "device", "tool": "tool", "food": "food", "plant": "plant",
    "vehicle": "vehicle", "building": "building", "machine": "machine",
}  # fmt: skip
MODAL = {"can", "could", "would", "might", "will", "may", "do", "should", "does", "usually",
          "often", "normally", "typically"}  # fmt: skip
BIGGER = {"bigger", "larger", "taller", "heavier", "longer", "wider", "greater"}
SMALLER = {"smaller", "shorter", "lighter", "tinier", "littler", "narrower"}
LOCATED = {"found", "located", "kept", "seen", "stored", "used", "placed", "situated", "living",
            "present", "inside", "somewhere", "native", "sold", "in", "on", "at"}  # fmt: skip
PREPOSITIONS = {"in", "inside", "on", "at", "near", "under", "around", "within", "into"}
WHO = {"that", "which", "who"}
SENSE = {"taste", "tastes", "feel", "feels", "look", "looks", "smell", "smells", "seem", "sound"}
PLURAL_HINT = re.compile(r"\bletters?\b")
CATEGORY_FIRST = {"flower", "boy", "girl"}  # secrets whose name is asked as a category
SPLITTERS = {"with", "that", "which", "who", "used", "found", "made", "worn", "kept"}
PERSON = {"he", "she", "they", "person", "someone", "individual", "job", "profession"}
LOOKS = {"color", "colour", "shape", "taste", "texture", "material"}
TAILS = [
    tail.split()
    for tail in (
        "to function", "to operate", "to work", "to run", "at work", "purposes", "purpose",
        "setting", "settings", "by humans", "by people", "by most people", "by human beings",
        "in taste", "in nature", "in general", "in size", "there", "inside", "environment", "for",
        "of some kind", "in everyday life", "in daily life", "on it", "for humans", "for people",
    )
]  # fmt: skip
