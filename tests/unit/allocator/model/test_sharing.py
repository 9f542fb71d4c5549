"""Who may share a MetaX GPU: QoS policies and application classes by MetaX's rules."""

import pytest

from allocator.model.sharing import (
    AppClass,
    QosPolicy,
    ShareClass,
    ShareDefect,
    ShareKeys,
    books_cores,
    crowding,
    may_join,
    parse_share_class,
    share_class,
)

QOS_KEY, APP_CLASS_KEY = "metax-tech.com/sgpu-qos-policy", "metax-tech.com/sgpu-app-class"
BEST, FIXED = ShareClass(QosPolicy.BEST_EFFORT), ShareClass(QosPolicy.FIXED_SHARE)
ONLINE = ShareClass(None, AppClass.ONLINE)
OFFLINE = ShareClass(QosPolicy.BEST_EFFORT, AppClass.OFFLINE)


def read(annotations: dict[str, str], *counts: int) -> ShareClass:
    """Return the class of annotations that must be good."""
    found = share_class(annotations, ShareKeys(QOS_KEY, APP_CLASS_KEY), counts)
    assert isinstance(found, ShareClass), found
    return found


def defects(annotations: dict[str, str], *counts: int) -> tuple[ShareDefect, ...]:
    """Return what is wrong with annotations that must be refused."""
    found = share_class(annotations, ShareKeys(QOS_KEY, APP_CLASS_KEY), counts)
    assert not isinstance(found, ShareClass)
    return found


def test_without_a_word_a_pod_is_best_effort() -> None:
    """What HAMi's webhook writes where nobody says anything."""
    assert read({}, 1) == BEST
    assert read({APP_CLASS_KEY: "offline"}, 1) == OFFLINE


@pytest.mark.parametrize("policy", list(QosPolicy))
def test_each_policy_is_known_by_name(policy: QosPolicy) -> None:
    """The three of MetaX."""
    assert read({QOS_KEY: policy}, 2) == ShareClass(policy)


@pytest.mark.parametrize("policy", [None, "burst-share", "", "nonsense"])
def test_the_policy_of_an_online_pod_is_not_used(policy: str | None) -> None:
    """Whatever it says, as in HAMi."""
    qos = {} if policy is None else {QOS_KEY: policy}

    assert read({APP_CLASS_KEY: "online", **qos}, 1) == ONLINE


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Best-Effort",
        "best-effort ",
        "best-effort,fixed-share",
        "online",
        "0",
        "\n",
        "\x1b[0m",
        "best\u2010effort",
        "x" * 10_000,
        "fixed-share;",
        "null",
        "\u202e",
    ],
)
@pytest.mark.parametrize("key", [QOS_KEY, APP_CLASS_KEY])
def test_any_other_word_is_refused(key: str, text: str) -> None:
    """With what would be accepted, in text that a terminal shows as it is."""
    if key == APP_CLASS_KEY and text == "online":
        return
    (defect,) = defects({key: text}, 1)

    assert defect.key == key
    assert defect.what.isprintable()
    assert len(defect.what) < 200
    assert f"remove {key}" in defect.remedy


@pytest.mark.parametrize("word", list(AppClass))
def test_a_class_goes_with_one_gpu(word: AppClass) -> None:
    """A pod that asks for two has no class (M5)."""
    (defect,) = defects({APP_CLASS_KEY: word}, 1, 2)

    assert "asks for 2" in defect.what


def test_both_defects_are_told_at_once() -> None:
    """So that one round suffices to mend them."""
    found = defects({APP_CLASS_KEY: "later", QOS_KEY: "most"}, 1)

    assert [defect.key for defect in found] == [APP_CLASS_KEY, QOS_KEY]


@pytest.mark.parametrize(
    ("mine", "theirs", "may"),
    [
        (BEST, BEST, True),
        (BEST, FIXED, False),
        (FIXED, BEST, False),
        (BEST, OFFLINE, False),
        (BEST, ONLINE, False),
        (OFFLINE, BEST, False),
        (OFFLINE, OFFLINE, True),
        (OFFLINE, ShareClass(QosPolicy.FIXED_SHARE, AppClass.OFFLINE), False),
        (OFFLINE, ONLINE, False),
        (ONLINE, OFFLINE, True),
        (ONLINE, ShareClass(QosPolicy.FIXED_SHARE, AppClass.OFFLINE), True),
        (ONLINE, ONLINE, True),
        (ONLINE, FIXED, False),
    ],
)
def test_who_joins_whom(mine: ShareClass, theirs: ShareClass, may: bool) -> None:
    """The GPU is in use by *theirs*, and *mine* comes later."""
    assert mine.joins(theirs) is may


def test_a_grant_without_a_class_is_in_nobodys_way() -> None:
    """On GPUs that are not divided by a policy nothing changes."""
    assert may_join("", "best-effort")
    assert may_join("online", "")
    assert not may_join(str(BEST), str(FIXED))
    assert may_join(str(ONLINE), str(OFFLINE))


def test_only_online_pods_are_not_charged_for_compute() -> None:
    """They go first, so a share of theirs bounds nobody."""
    assert [books_cores(str(c)) for c in (BEST, OFFLINE, ONLINE)] == [True, True, False]


def test_an_online_pod_prefers_company_of_its_own() -> None:
    """An idle GPU is best; whom it would hold back comes last. Other pods do not choose so."""
    on, off = str(ONLINE), str(OFFLINE)
    ranked = [[], [on], [on, off, off, off], [on, on], [off], [off, off]]

    assert [crowding(on, theirs) for theirs in ranked] == [0, 20, 26, 40, 100, 200]
    assert {crowding(off, theirs) for theirs in ranked} == {0}
    assert {crowding(str(BEST), theirs) for theirs in ranked} == {0}


@pytest.mark.parametrize("one", [BEST, FIXED, ONLINE, OFFLINE])
def test_the_text_of_a_class_gives_it_back(one: ShareClass) -> None:
    """A grant keeps it in the ledger."""
    assert parse_share_class(str(one)) == one


@pytest.mark.parametrize("text", ["", "online:", ":", "best-effort:online", "later", "\x00"])
def test_no_other_text_is_a_class(text: str) -> None:
    """A ledger may have been edited by hand."""
    assert parse_share_class(text) is None
