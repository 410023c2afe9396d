"""One typed settings object, from the command line and from ``SERVESCOPE_*`` variables.

Every option has both spellings: ``--max-model-len 512`` and ``SERVESCOPE_MAX_MODEL_LEN=512``;
the command line wins. A bad value is one clear line and exit code 2.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

KNOWN_BACKENDS = ("naive", "generate", "paged", "vllm", "remote")
SHIPPED_BACKENDS = ("naive", "generate", "paged", "vllm")
SPACE_PROXIES = ("10.0.0.0/8",)
"""From where a Space's own proxy connects."""


class ResultRouting(StrEnum):
    """How the naive executor gives a result to the call that waits for it."""

    SHARED = "shared"
    """Every call waits on one queue, as in the design this follows: results can be swapped."""
    PER_CALL = "per_call"
    """A queue a call: results cannot be mixed."""


Names = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    """What the operator chose. Each option is a variable too: SERVESCOPE_<OPTION>; the command line wins."""

    model_config = SettingsConfigDict(
        env_prefix="SERVESCOPE_",
        frozen=True,
        extra="forbid",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_prog_name="app.py",
        nested_model_default_partial_update=False,
    )

    model: str = Field("smollm2", min_length=1, description="hub id, local path, or smollm2 (works offline)")
    remote_url: Names = Field(
        (),
        repr=False,  # it may hold a password
        description="OpenAI-compatible server(s) behind the engine remote, comma-separated",
    )
    remote_api_key: str | None = Field(
        None, pattern=r"^[\x21-\x7e]+$", repr=False, description="key of the remote server(s)"
    )
    remote_model: str | None = Field(
        None, min_length=1, description="model to ask the remote server(s) for (default: their first)"
    )
    replay: Names = Field(
        (), description="recordings to show, comma-separated; without --backends no engine is offered"
    )
    record: Path | None = Field(None, description="folder for every engine's records, as they come")
    backends: Names = Field(
        default_factory=lambda given: () if given.get("replay") else SHIPPED_BACKENDS,
        validate_default=True,
        description="engines to offer, comma-separated; the page opens with the first",
    )
    preload: Names | None = Field(
        None,
        description="engines that start with the server (default: the first); others start when first asked",
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(7860, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    root_path: str = Field("", description="path prefix behind a proxy, such as /lab")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where the model runs")
    max_model_len: int = Field(
        1024, ge=8, le=1_000_000, description="longest prompt plus answer, in tokens (vLLM: 512 unless given)"
    )
    batch_size: int = Field(
        4, ge=1, le=256, description="places in each of the naive pools and in a static batch"
    )
    max_tokens: int = Field(512, ge=1, description="most tokens one request may ask for")
    max_waiting: int = Field(256, ge=1, description="requests that may wait for an engine before 429")
    block_size: int = Field(16, ge=1, le=1024, description="slots of a KV-cache block")
    num_blocks: int | None = Field(None, ge=1, description="blocks of the KV cache (default: from memory)")
    max_num_seqs: int = Field(16, ge=1, le=1024, description="most requests in one step")
    max_num_batched_tokens: int = Field(512, ge=1, description="token budget of one step")
    gpu_memory_utilization: float = Field(
        0.5, gt=0, le=1, description="share of the memory that a KV cache may take"
    )
    dtype: Literal["float32", "int8"] = Field(
        "float32", description="paged, on a CPU: numbers of the weights; int8 is faster and another model"
    )
    paged_kernels: Literal["fast", "plain"] = Field(
        "fast", description="paged: fused operations where the model allows, or transformers' own modules"
    )
    engine_memory: float | None = Field(
        None,
        gt=0,
        description="GiB that all engines may hold together: idle ones are stopped to make room for others "
        "(default: 90% of the device)",
    )
    enforce_eager: bool = Field(True, description="vLLM: no compilation and no CUDA graphs")
    vllm_args: str = Field(
        "", description="more arguments for vLLM's engine, as for vllm serve: --vllm-args '--seed 1'"
    )
    vllm_tap: bool = Field(True, description="vLLM: see every step and block through its scheduler")
    public: bool = Field(
        False, description="strangers may come: limits per visitor, no control without the key"
    )
    visitor_requests: int = Field(
        4, ge=1, le=256, description="--public: requests that a visitor may have waiting or running"
    )
    address_requests: int = Field(
        64,
        ge=1,
        le=4096,
        description="--public: the same for all visitors of one network address, such as a classroom's",
    )
    trusted_proxies: Names = Field(
        (),
        description="proxies whose X-Forwarded-For names the visitor: addresses or networks, comma-separated",
    )
    instructor_key: str | None = Field(
        None, min_length=8, repr=False, description="key for pause, step, speed, restart, kill"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level of the log, on stderr: info has a line as a request arrives and ends"
    )
    log_format: Literal["logfmt", "json"] = Field("logfmt", description="a line of the log")
    lang: Literal["auto", "en", "ko"] = Field("auto", description="language of the page")
    result_routing: Literal["shared", "per_call"] = Field(
        "per_call", description="naive: how results find their call"
    )
    result_lag: float = Field(
        0.0,
        ge=0,
        le=1,
        description="naive: seconds by which the loop of whole answers is late to wait for a result",
    )
    cache_dir: Path = Field(Path.home() / ".cache" / "servescope", description="where prepared weights lie")

    @field_validator("backends", "preload", "remote_url", "replay", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        if isinstance(value, list):  # the command line gives one list entry per occurrence
            return tuple(name.strip() for part in value for name in str(part).split(",") if name.strip())
        return value

    @field_validator("remote_url")
    @classmethod
    def _addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for number, url in enumerate(urls, start=1):
            _check_url(f"address {number}", url)
        if len({url.rstrip("/").removesuffix("/v1") for url in urls}) != len(urls):
            raise ValueError("a server is named twice")
        return urls

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            try:
                ip_network(proxy)
            except ValueError:
                raise ValueError(
                    f"{proxy!r} is neither an address nor a network such as 10.0.0.0/8"
                ) from None
        return proxies

    @field_validator("backends")
    @classmethod
    def _with_remote(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """``remote`` is offered exactly where there is a server to ask."""
        if "remote_url" not in info.data:  # refused itself
            return names
        if "remote" in names and not info.data["remote_url"]:
            raise ValueError("remote needs the address of a server: --remote-url")
        return (*names, "remote") if info.data["remote_url"] and "remote" not in names else names

    @field_validator("backends", "preload")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        for name in names:
            if name not in KNOWN_BACKENDS:
                raise ValueError(f"{name!r} is not one of {', '.join(KNOWN_BACKENDS)}")
        if len(set(names)) != len(names):
            raise ValueError("a backend is named twice")
        return names

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if not self.backends and not self.replay:
            raise ValueError("backends: name at least one engine")
        if self.dtype == "int8" and self.paged_kernels == "plain":
            raise ValueError("dtype: int8 needs --paged-kernels fast")
        for name in self.engines_to_preload:
            if name not in self.backends:
                raise ValueError(f"preload: {name!r} is not among --backends {','.join(self.backends)}")
        return self

    @property
    def engines_to_preload(self) -> tuple[str, ...]:
        return self.backends[:1] if self.preload is None else self.preload

    @property
    def is_loopback(self) -> bool:
        """Only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:  # a name
            return self.host == "localhost"


def _check_url(which: str, url: str) -> None:
    """Raises ``ValueError`` without repeating the address, which may hold a password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"{which} is no URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{which} must begin with http:// or https:// and name a host")
    import httpx  # only where it is needed: most servers start without

    try:
        httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError(f"{which} is no URL") from None
    if parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise ValueError(f"{which} must be a plain address, without ?, # or spaces")


def parse_settings(args: list[str] | None = None) -> Settings:
    """Settings from ``args`` (default ``sys.argv``) and the environment; exits with 2 on a bad value."""
    arguments = sys.argv[1:] if args is None else args
    try:
        settings = Settings(_cli_parse_args=arguments)
    except ValidationError as error:
        print(f"app.py: {_describe(error)}", file=sys.stderr)
        raise SystemExit(2) from None
    except SettingsError as error:
        print(f"app.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    return _for_hosting_space(settings)


def _describe(error: ValidationError) -> str:
    """One line: the option, what is wrong with it, and the value, unless it is a secret."""
    first = error.errors()[0]
    if not first["loc"]:  # a rule about several options names them itself
        return first["msg"]
    field = str(first["loc"][0])
    is_secret = not Settings.model_fields[field].repr
    value = "" if is_secret else f" (got {first['input']!r})"
    return f"--{field.replace('_', '-')}: {first['msg']}{value}"


def _for_hosting_space(settings: Settings) -> Settings:
    """Where a hosting Space is detected the page must be reachable, and strangers will come, through a
    proxy with an address of its own network."""
    if not os.environ.get("SPACE_ID"):
        return settings
    proxies = settings.trusted_proxies or SPACE_PROXIES
    return settings.model_copy(update={"host": "0.0.0.0", "public": True, "trusted_proxies": proxies})  # noqa: S104
