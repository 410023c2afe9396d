"""Options from the command line and the environment, and what is refused in one line."""

from __future__ import annotations

import pytest

from backends.settings import Settings, parse_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPACE_ID", *(f"SERVESCOPE_{field.upper()}" for field in Settings.model_fields)):
        monkeypatch.delenv(name, raising=False)


def test_the_defaults_are_safe_for_a_laptop() -> None:
    settings = parse_settings([])
    assert (settings.host, settings.port, settings.public) == ("127.0.0.1", 7860, False)
    assert settings.is_loopback
    assert settings.engines_to_preload == settings.backends[:1]


def test_lists_are_comma_separated() -> None:
    settings = parse_settings(["--backends", "generate, naive", "--preload", "naive"])
    assert settings.backends == ("generate", "naive")
    assert settings.engines_to_preload == ("naive",)


def test_a_replay_needs_no_engine_and_may_have_some() -> None:
    assert parse_settings(["--replay", "a.jsonl,b.jsonl.gz"]).backends == ()
    settings = parse_settings(["--replay", "a.jsonl", "--backends", "naive"])
    assert (settings.replay, settings.backends) == (("a.jsonl",), ("naive",))


def test_an_empty_preload_starts_nothing() -> None:
    assert parse_settings(["--preload", ""]).engines_to_preload == ()


def test_each_option_is_a_variable_too_and_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVESCOPE_MAX_MODEL_LEN", "300")
    monkeypatch.setenv("SERVESCOPE_BACKENDS", "generate")
    monkeypatch.setenv("SERVESCOPE_BATCH_SIZE", "2")
    settings = parse_settings(["--batch-size", "3"])
    assert (settings.max_model_len, settings.backends, settings.batch_size) == (300, ("generate",), 3)


def test_a_flag_needs_no_value() -> None:
    assert parse_settings(["--public"]).public
    assert not parse_settings(["--no-public"]).public


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "99999"], ["--port", "99999", "65535"]),
        (["--port", "http"], ["--port", "http", "integer"]),
        (["--device", "tpu"], ["--device", "tpu", "cuda"]),
        (["--batch-size", "0"], ["--batch-size", "0", "greater than or equal to 1"]),
        (["--backends", "naive,magic"], ["--backends", "magic", "naive"]),
        (["--backends", "naive,naive"], ["--backends", "twice"]),
        (["--backends", ""], ["at least one engine"]),
        (["--backends", "naive", "--preload", "paged"], ["paged", "not among"]),
        (["--instructor-key", "short"], ["--instructor-key", "at least 8"]),
        (["--lang", "fr"], ["--lang", "fr"]),
        (["--visitor-requests", "0"], ["--visitor-requests", "0", "greater than or equal to 1"]),
        (["--address-requests", "5000"], ["--address-requests", "5000", "4096"]),
        (["--trusted-proxies", "10.0.0.0/8,proxy"], ["--trusted-proxies", "'proxy'", "10.0.0.0/8"]),
        (["--backends", "naive,remote"], ["--backends", "--remote-url"]),
        (["--remote-url", "localhost:8000"], ["--remote-url", "http://"]),
        (["--remote-url", "ftp://host"], ["--remote-url", "https://"]),
        (["--remote-url", "http://a,http://"], ["--remote-url", "address 2", "host"]),
        (["--remote-url", "http://host:port"], ["--remote-url", "no URL"]),
        (["--remote-url", "http://[::1"], ["--remote-url", "no URL"]),
        (["--remote-url", "http://xn--\u00fc"], ["--remote-url", "no URL"]),
        (["--remote-url", "http://host/?key=1"], ["--remote-url", "without ?"]),
        (["--remote-url", "http://a/v1/,http://a"], ["--remote-url", "twice"]),
        (["--remote-url", "http://a", "--remote-api-key", "two words"], ["--remote-api-key"]),
        (["--remote-url", "http://a", "--remote-model", ""], ["--remote-model"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_a_bad_value_is_one_clear_line_and_exit_code_2(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_settings(arguments)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert all(word in line for word in words), line


def test_an_unknown_option_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_settings(["--bogus"])
    assert stop.value.code == 2
    assert "--bogus" in capsys.readouterr().err


def test_a_bad_variable_is_named_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVESCOPE_PORT", "many")
    with pytest.raises(SystemExit) as stop:
        parse_settings([])
    assert stop.value.code == 2
    assert "many" in capsys.readouterr().err


def test_a_key_that_is_refused_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_settings(["--instructor-key", "s3cr3t"])
    assert "s3cr3t" not in capsys.readouterr().err


def test_remote_is_offered_exactly_where_there_is_a_server_to_ask() -> None:
    assert "remote" not in parse_settings([]).backends
    settings = parse_settings(["--remote-url", "http://a:8000/v1, https://b", "--backends", "naive"])
    assert settings.backends == ("naive", "remote")
    assert settings.remote_url == ("http://a:8000/v1", "https://b")
    first = parse_settings(["--remote-url", "http://a", "--backends", "remote,naive"])
    assert first.engines_to_preload == ("remote",)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--remote-url", "http://me:s3cret@host:99999"],
        ["--remote-url", "http://me:s3cret@host,http://me:s3cret@host"],
        ["--remote-url", "me:s3cret@host"],
        ["--remote-url", "http://host", "--remote-api-key", "s3cret s3cret"],
    ],
)
def test_secrets_of_a_remote_server_are_not_printed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_settings(arguments)
    assert "s3cret" not in capsys.readouterr().err


def test_a_hosting_space_is_public_and_trusts_its_own_proxy_or_those_that_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parse_settings(["--public"]).trusted_proxies == ()
    monkeypatch.setenv("SPACE_ID", "somebody/servescope")
    settings = parse_settings([])
    assert (settings.host, settings.public, settings.trusted_proxies) == ("0.0.0.0", True, ("10.0.0.0/8",))
    assert parse_settings(["--trusted-proxies", "192.0.2.1"]).trusted_proxies == ("192.0.2.1",)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.53"])
def test_loopback_is_recognised(host: str) -> None:
    assert Settings(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::"])
def test_what_others_can_reach_is_not_loopback(host: str) -> None:
    assert not Settings(host=host).is_loopback
