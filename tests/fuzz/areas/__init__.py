"""The areas that are searched."""

from fuzz.areas import (
    configuration,
    files,
    foreign,
    http,
    names,
    programs,
    refusals,
    sessions,
    templates,
    tools,
    words,
)
from fuzz.oracle import Area

AREAS: tuple[Area, ...] = (
    configuration.SETTINGS_AREA,
    configuration.FILES_AREA,
    configuration.ENVIRONMENTS_AREA,
    sessions.ROWS_AREA,
    sessions.TEXT_AREA,
    sessions.ENGINE_AREA,
    foreign.AREA,
    programs.AREA,
    templates.AREA,
    refusals.AREA,
    names.AREA,
    tools.AREA,
    http.CHAT_AREA,
    http.COMPLETIONS_AREA,
    files.RUN_AREA,
    files.MODEL_AREA,
    words.ANSWERS_AREA,
    words.COMMANDS_AREA,
)
