"""Objects: the pods of one object judged together, on what each template leaves to the next."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Protocol, TypeVar

from allocator.config.manifest import ManifestPod
from allocator.model.gpu import Snapshot
from allocator.report.feasibility import Feasibility, FeasibilityVerdict, too_few

P = TypeVar("P")


class Judged(Protocol):
    """The answer about the pods of one template."""

    @property
    def verdict(self) -> FeasibilityVerdict:
        """Return what would become of them."""

    @property
    def outlook(self) -> Feasibility | None:
        """Return where they would be, ``None`` where they ask for nothing."""


J = TypeVar("J", bound=Judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOfFile(Generic[P]):
    """A pod of a manifest, with its file as messages show it, and which file that was."""

    file: str
    number: int  # of the file among those that were read
    made: ManifestPod[P]


def judge_all(
    pods: Iterable[PodOfFile[P]],
    judge: Callable[[ManifestPod[P], Snapshot | None], J],
    revise: Callable[[J, Feasibility], J],
) -> list[tuple[str, J]]:
    """Return each pod's file and answer; the templates of one object share the GPUs.

    ``judge`` answers about one template on what the earlier ones left, ``None`` for the first;
    ``revise`` replaces the outlook of an answer. Each object is judged on its own.
    """
    found: list[tuple[str, J]] = []
    for _, group in groupby(pods, key=lambda pod: (pod.number, pod.made.object)):
        members = list(group)
        answers = _object([pod.made for pod in members], judge, revise)
        found += [(members[0].file, answer) for answer in answers]
    return found


def _object(
    made: Sequence[ManifestPod[P]],
    judge: Callable[[ManifestPod[P], Snapshot | None], J],
    revise: Callable[[J, Feasibility], J],
) -> Iterator[J]:
    left: Snapshot | None = None
    answers: list[J] = []
    for pod in made:
        answer = judge(pod, left)
        left = left if answer.outlook is None else answer.outlook.left
        answers.append(answer)
    running = sum(map(_running, made, answers))
    for pod, answer in zip(made, answers, strict=True):
        found = answer.outlook
        if (
            running < pod.together
            and answer.verdict is FeasibilityVerdict.FITS
            and found is not None
            and found.copies.running < pod.wanted
        ):
            yield revise(answer, too_few(found))
        else:
            yield answer


def _running(pod: ManifestPod[P], answer: Judged) -> int:
    """Return how many pods of a template would run; those that ask for no GPU all do."""
    found = answer.outlook
    if found is None:
        return pod.wanted if answer.verdict is FeasibilityVerdict.NO_REQUEST else 0
    return found.copies.running
