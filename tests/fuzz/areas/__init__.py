"""The areas that are searched."""

from fuzz.areas import (
    answers,
    command_lines,
    env_configs,
    files,
    http,
    rows,
    run_files,
    sessions,
    settings,
    templates,
)
from fuzz.oracle import Area

AREAS: tuple[Area, ...] = (
    settings.AREA,
    run_files.AREA,
    env_configs.AREA,
    rows.AREA,
    sessions.TEXT_AREA,
    sessions.ENGINE_AREA,
    templates.AREA,
    http.CHAT_AREA,
    http.COMPLETIONS_AREA,
    files.RUN_AREA,
    files.MODEL_AREA,
    answers.AREA,
    command_lines.AREA,
)
