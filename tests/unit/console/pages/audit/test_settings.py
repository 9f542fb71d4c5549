"""The history of settings: what changed from one version to the next."""

from allocator.cluster.configmaps import SETTINGS_NAME
from console.pages.audit.settings import CONFIGMAP, MOST_LINES, compared_lines


def test_only_what_differs_is_marked() -> None:
    assert compared_lines("a: 1\nb: 2", "a: 1\nb: 3") == (
        ("", "a: 1"),
        ("old", "b: 2"),
        ("new", "b: 3"),
    )


def test_the_first_version_is_shown_whole() -> None:
    assert compared_lines("", "a: 1\nb: 2") == (("", "a: 1"), ("", "b: 2"))


def test_a_comparison_is_bounded() -> None:
    """A ConfigMap may have a mebibyte, of which nothing is alike."""
    earlier = "\n".join(f"a{n}" for n in range(100_000))
    later = "\n".join(f"b{n}" for n in range(100_000))

    assert len(compared_lines(earlier, later)) <= 2 * MOST_LINES


def test_the_command_names_our_configmap() -> None:
    assert CONFIGMAP == SETTINGS_NAME
