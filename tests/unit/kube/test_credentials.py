"""Identity follows its files, and survives their replacement."""

import ssl
from pathlib import Path

import pytest

from kube.config import Access
from kube.credentials import Credentials
from kube.errors import ConfigError
from tests.fakes.kube_clock import FakeClock


def test_a_rotated_token_is_read_within_a_minute(tmp_path: Path) -> None:
    """The file is read again after 60 s, not at every call."""
    file = tmp_path / "token"
    file.write_text("old\n")
    time = FakeClock()
    credentials = Credentials(Access(url="http://api", token=file), time.clock())

    seen = [credentials.headers()]
    file.write_text("new\n")
    for seconds in (59, 1):
        time.now += seconds
        seen.append(credentials.headers())

    assert [h["Authorization"] for h in seen] == ["Bearer old", "Bearer old", "Bearer new"]


def test_a_token_that_was_refused_is_read_at_once(tmp_path: Path) -> None:
    """After ``forget`` the next call reads the file."""
    file = tmp_path / "token"
    file.write_text("old")
    credentials = Credentials(Access(url="http://api", token=file), FakeClock().clock())
    credentials.headers()
    file.write_text("new")

    credentials.forget()

    assert credentials.headers() == {"Authorization": "Bearer new"}


def test_a_vanished_token_is_kept(tmp_path: Path) -> None:
    """A file that is missing for a moment costs nothing: the last good one stays."""
    file = tmp_path / "token"
    file.write_text("old")
    time = FakeClock()
    credentials = Credentials(Access(url="http://api", token=file), time.clock())
    credentials.headers()
    file.unlink()
    time.now += 61

    assert credentials.headers() == {"Authorization": "Bearer old"}


@pytest.mark.parametrize(
    "access",
    [
        pytest.param(Access(url="http://api", token=Path("/nowhere/token")), id="no-token"),
        pytest.param(Access(url="https://api", ca=b"not a certificate"), id="bad-authority"),
        pytest.param(Access(url="https://api", certificate=b"x", key=b"y"), id="bad-pair"),
    ],
)
def test_bad_from_the_start(access: Access) -> None:
    """What was never good is an error of ours."""
    with pytest.raises(ConfigError, match="cannot load the credentials"):
        Credentials(access, FakeClock().clock()).headers()


def test_skipping_verification() -> None:
    """Without verification neither name nor chain is checked."""
    credentials = Credentials(Access(url="https://api", verify=False), FakeClock().clock())

    context = credentials.tls()

    assert isinstance(context, ssl.SSLContext)
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)
