"""Settings: precedence, parsing, what is wrong and where; nothing is read at import."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.base import settings
from hubcli.errors import UsageError


def write_config(text: str) -> Path:
    path = settings.config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_HUB_DIR")
    assert settings.current() == settings.Settings()
    assert settings.current().allow_protocols == ("https", "ssh")
    assert settings.current().lock_timeout == 600


def test_override_beats_environment_beats_config(monkeypatch: pytest.MonkeyPatch) -> None:
    write_config('host = "config.example"\nlock_timeout = 5\noffline = true\n')
    assert settings.current().host == "config.example"
    assert settings.current().lock_timeout == 5
    assert settings.current().offline
    monkeypatch.setenv("HUB_HOST", "env.example")
    assert settings.current().host == "env.example"
    settings.override(host="option.example")
    assert settings.current().host == "option.example"
    settings.override(host=None)
    assert settings.current().host == "env.example"


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_HOST", "")
    assert settings.current().host == "github.com"


def test_the_configuration_is_read_again_when_it_changes() -> None:
    write_config('host = "one.example"\n')
    assert settings.current().host == "one.example"
    write_config('host = "another.example"\n')
    assert settings.current().host == "another.example"


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/home/u"},
        {"HOME": "/home/u/", "XDG_CONFIG_HOME": "/elsewhere/"},
        {"HOME": "/", "XDG_CONFIG_HOME": ""},
        {"HOME": "/home/u", "XDG_CONFIG_HOME": "relative"},
        {"HOME": "/home/u", "XDG_CONFIG_HOME": "~/config"},
        {"HOME": "relative"},
        {"HOME": ""},
        {},
    ],
)
def test_where_the_configuration_lies(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """hub answers plain cases itself, to start quickly; the answer is platformdirs'."""
    import platformdirs

    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert settings.config_file() == platformdirs.user_config_path("hubcli", appauthor=False) / "config.toml"


def test_overriding_restores() -> None:
    settings.override(host="a")
    with settings.overriding(host="b", offline=True):
        settings.override(quiet=True)
        assert settings.current().host == "b" and settings.current().quiet
    assert settings.current().host == "a"
    assert not settings.current().offline and not settings.current().quiet


def test_unknown_names() -> None:
    with pytest.raises(TypeError, match="no setting named 'tokn'"):
        settings.override(tokn="x")
    path = write_config("yes = true\n")
    with pytest.raises(UsageError, match="no setting named 'yes'") as caught:
        settings.current()
    assert str(path) in caught.value.message


def test_broken_toml() -> None:
    write_config("host = \n")
    with pytest.raises(UsageError, match="is not valid TOML"):
        settings.current()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("HUB_OFFLINE", "maybe", "HUB_OFFLINE must be on or off, not 'maybe'"),
        ("HUB_LOCK_TIMEOUT", "soon", "HUB_LOCK_TIMEOUT must be a number of seconds"),
        ("HUB_LOCK_TIMEOUT", "-1", "HUB_LOCK_TIMEOUT must be a number of seconds"),
        ("HUB_LOCK_TIMEOUT", "nan", "HUB_LOCK_TIMEOUT must be a number of seconds"),
        ("HUB_FRAMEWORK", "jax", "HUB_FRAMEWORK must be one of engine, torch"),
        ("HUB_TRUST", "always", "HUB_TRUST must be one of once, commit, repo, strict"),
        ("HUB_ALLOW_PROTOCOLS", "https,ext", "lists 'ext'"),
        ("HUB_REWRITE", "https://a/", "'https://a/' is not FROM=TO"),
        ("HUB_MIRROR", "mirror", "HUB_MIRROR: 'mirror' is no mirror"),
        ("HUB_MIRROR", "ftp://h/x", "is no mirror"),
        ("HUB_MIRROR", "https:///x", "is no mirror"),
        ("HUB_MIRROR", "https://h/x?key=1", "is no mirror"),
        ("HUB_MIRROR", "https://me:pw@h/x", "HUB_MIRROR carries credentials"),
        ("HUB_GIT_URL", "https://h/{owner}", "must contain {owner} and {repo}"),
        ("HUB_GIT_URL", "https://h/{owner}/{repo}/{branch}", "is not a template"),
    ],
)
def test_values_that_are_wrong(variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError) as caught:
        settings.current()
    assert message in caught.value.message


def test_rewrites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_REWRITE", "https://a/x/=https://m/?k=v&p=, https://a/=file:///srv/")
    assert settings.rewrite_url("https://a/x/y") == "https://m/?k=v&p=y"
    assert settings.rewrite_url("https://a/y") == "file:///srv/y"
    assert settings.rewrite_url("https://b/y") == "https://b/y"
    monkeypatch.delenv("HUB_REWRITE")
    write_config('[rewrite]\n"https://b/" = "https://c/"\n')
    assert settings.rewrite_url("https://b/y") == "https://c/y"


def test_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.current().mirror is None
    for given, meant in (
        ("https://h/x/", "https://h/x"),
        ("s3://bucket/hub", "s3://bucket/hub"),
        ("/srv/hub/", "file:///srv/hub"),
        ("~/hub", (Path.home() / "hub").as_uri()),
    ):
        monkeypatch.setenv("HUB_MIRROR", given)
        assert settings.current().mirror == meant
    monkeypatch.delenv("HUB_MIRROR")
    write_config('mirror = "https://c/m"\n')
    assert settings.current().mirror == "https://c/m"


def test_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.check_scheme("https://h/x")
    settings.check_scheme("SSH://h/x")
    with pytest.raises(UsageError, match="protocol file is not allowed") as caught:
        settings.check_scheme("file:///x")
    assert caught.value.hint == "set HUB_ALLOW_PROTOCOLS=https,ssh,file"
    with pytest.raises(UsageError, match="protocol ftp is not allowed") as caught:
        settings.check_scheme("ftp://h/x")
    assert caught.value.hint == "hub speaks https, ssh, http, file only"
    with pytest.raises(UsageError, match="has no scheme"):
        settings.check_scheme("h/x")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    settings.check_scheme("file:///x")
    with pytest.raises(UsageError):
        settings.check_scheme("https://h/x")


def test_the_token_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_TOKEN", "s3cret")
    assert settings.current().token == "s3cret"
    assert "s3cret" not in repr(settings.current())


@pytest.mark.parametrize("name", ["HUB_TOKEN", "HF_TOKEN"])
@pytest.mark.parametrize("where", ["environment", "configuration"])
@pytest.mark.parametrize("value", ["t0ken\n", " t0ken", "\tt0ken\r\n", "t0ken\u00a0"])
def test_white_space_around_a_token_is_stripped(
    name: str, where: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = {"HUB_TOKEN": "token", "HF_TOKEN": "hf_token"}[name]
    if where == "environment":
        monkeypatch.setenv(name, value)
    else:
        write_config(f'{setting} = "{value.encode("unicode_escape").decode().replace("xa0", "u00a0")}"\n')
    assert getattr(settings.current(), setting) == "t0ken"
    assert "t0ken" not in repr(settings.current())


@pytest.mark.parametrize("value", ["  ", "\n"])
def test_a_token_of_white_space_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_TOKEN", value)
    assert settings.current().token is None


@pytest.mark.parametrize("value", ["t0ken\nX-Evil: 1", "two words", "t0k\x07en", "t\u00f6ken"])
@pytest.mark.parametrize("name", ["HUB_TOKEN", "HF_TOKEN"])
def test_a_token_that_is_none_is_not_shown(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name) as caught:
        settings.current()
    assert value not in f"{caught.value}{caught.value.hint}"


def test_other_addresses_are_stripped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_HOST", " h.example\n")
    monkeypatch.setenv("HUB_GIT_URL", " https://h/{owner}/{repo}\n")
    monkeypatch.setenv("HF_ENDPOINT", " https://m.example/hf/ \n")
    now = settings.current()
    assert (now.host, now.git_url) == ("h.example", "https://h/{owner}/{repo}")
    assert now.hf_endpoint == "https://m.example/hf"


def test_hf_endpoint_stands_in_for_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://m.example:8443/hf/")
    for host in ("huggingface.co", "hf.co"):
        assert settings.rewrite_url(f"https://{host}/o/r/x?y=1") == "https://m.example:8443/hf/o/r/x?y=1"
    assert settings.rewrite_url("https://huggingface.co.evil/o") == "https://huggingface.co.evil/o"
    with pytest.raises(UsageError, match=r"HF_ENDPOINT.* leads out"):
        settings.rewrite_url("https://huggingface.co/../x")
    monkeypatch.setenv("HUB_REWRITE", "https://huggingface.co/=https://nearer/")
    assert settings.rewrite_url("https://huggingface.co/o") == "https://nearer/o"
    monkeypatch.setenv("HF_ENDPOINT", "https://huggingface.co/")
    assert settings.current().hf_endpoint is None


@pytest.mark.parametrize(
    "value",
    [
        "m.example",
        "ftp://m.example",
        "https://",
        "https://[::1",
        "https://h:x",
        "https://h/?q",
        "https://u:pw@h",
        "x y",
    ],
)
def test_an_hf_endpoint_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", value)
    with pytest.raises(UsageError, match="HF_ENDPOINT") as caught:
        settings.current()
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://[::1/x", "https://[::g]/x", "https://[::1]x/y", "https://h:port/x", "https://h:99999/x"]
)
def test_an_address_that_cannot_be_understood(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="is no host"):
        settings.check_scheme(url)
    monkeypatch.setenv("HUB_MIRROR", url)
    with pytest.raises(UsageError, match="is no host"):
        settings.current()
