"""``python -m scenes [NAME …]``: record on this machine, into ``assets/traces/``.

The engines are the operator's: ``SERVESCOPE_*`` variables say with which model and on what device. An
engine that cannot run here is told, and its recordings stay as they are. Exit code 1 where anything
else went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Collection
from functools import partial
from pathlib import Path

from app import build_registry, make_engine
from backends.api.in_process import in_process_post
from backends.errors import EngineUnavailable, ServescopeError
from backends.lessons.ground import Ground
from backends.settings import Settings, parse_settings
from backends.shelf import SHIPPED
from scenes.catalogue import NAMES, SCENES, Scene
from scenes.file import NotShippable, write_recording


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scenes", description="Record assets/traces/ anew.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (default: all): {', '.join(NAMES)}")
    parser.add_argument("--into", type=Path, default=SHIPPED, help="folder (default: assets/traces)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no recording is called {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}")
    arguments.into.mkdir(parents=True, exist_ok=True)
    return asyncio.run(record(parse_settings([]), arguments.names or NAMES, arguments.into))


async def record(settings: Settings, names: Collection[str], folder: Path) -> int:
    """One scene after the other, so that none takes time from another."""
    wanted = [scene for scene in SCENES if set(scene.names) & set(names)]
    results = [await _record_scene(scene, settings, names, folder) for scene in wanted]
    return 0 if all(results) else 1


async def _record_scene(scene: Scene, settings: Settings, names: Collection[str], folder: Path) -> bool:
    """False where it went wrong; its engines are gone when this returns."""
    registry = build_registry(settings)
    ground = Ground(partial(make_engine, settings, registry), lambda _: None, in_process_post(settings))
    what = ", ".join(name for name in scene.names if name in names)
    print(f"{what}: recording on {', '.join(scene.needs)}", flush=True)
    try:
        await scene.play(ground)
        for name, (_, lines) in zip(scene.recordings, ground.traces(), strict=True):
            if name in names:
                path = folder / f"{name}.jsonl.gz"
                print(f"{name}: {write_recording(lines, path):,} bytes in {path}", flush=True)
    except EngineUnavailable as error:
        print(f"{what}: not recorded, {error.message}", flush=True)
    except (ServescopeError, NotShippable) as error:
        print(f"{what}: FAILED, {error}", flush=True)
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
